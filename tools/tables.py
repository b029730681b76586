"""Reads the tables (.def files) that the program is compiled from: macros with C literals."""

import os
import re


def _arguments(text, at):
    """The arguments of a macro call whose opening parenthesis stands at `at`, and where it ends."""
    depth, start, quoted, found = 0, at + 1, False, []
    i = at
    while i < len(text):
        c = text[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c == "'":
            i = text.index("'", i + 1)
        elif c == "(":
            depth += 1
        elif c == ")" or (c == "," and depth == 1):
            depth -= c == ")"
            if depth == 0 or c == ",":
                found.append(text[start:i].strip())
                start = i + 1
            if depth == 0:
                return found, i
        i += 1
    raise ValueError("a macro call does not end")


def _plain(argument):
    """What a C literal says: joined strings, a character, None for NULL; else the text itself."""
    if argument.startswith('"'):
        parts = re.findall(r'"((?:[^"\\]|\\.)*)"', argument)
        return "".join(parts).replace('\\"', '"').replace("\\\\", "\\")
    if argument.startswith("'"):
        return argument[1:-1]
    return {"NULL": None, "0": 0}.get(argument, argument)


def rows(source, path, macro):
    with open(os.path.join(source, path), encoding="utf-8") as table:
        text = re.sub(r"/\*.*?\*/", "", table.read(), flags=re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    found = []
    for match in re.finditer(rf"\b{macro}\(", text):
        arguments, _ = _arguments(text, match.end() - 1)
        found.append([_plain(a) for a in arguments])
    if not found:
        raise ValueError(f"{path} has no {macro}")
    return found


class Option:
    def __init__(self, row):
        self.command, self.field, self.kind, self.letter, self.name, self.argument, self.text = row


class Command:
    def __init__(self, row, options):
        self.id, self.name, self.usage, self.text = row
        self.options = [o for o in options if o.command == self.id]

    def words(self):
        """What may stand first behind the command: ls|show NAME|..., record -p PID | show ..."""
        if self.usage.startswith(("-", "[")):
            return []
        return list(dict.fromkeys(re.findall(r"(?:^|\|\s?)([a-z]+)", self.usage)))


class Key:
    def __init__(self, row):
        (self.section, self.key, self.kind, self.initial, self.low, self.high, self.text) = row
        self.name = f"{self.section}.{self.key}"
        self.variable = f"CLRPULSE_{self.section}_{self.key}".upper()


class UploadKey:
    def __init__(self, row):
        self.name, self.kind, kinds, self.text = row
        self.kinds = kinds.split()


def commands(source):
    options = [Option(row) for row in rows(source, "config/options.def", "CLP_OPTION")]
    return [Command(row, options) for row in rows(source, "config/options.def", "CLP_COMMAND")]


def keys(source):
    return [Key(row) for row in rows(source, "config/options.def", "CLP_KEY")]


def upload_keys(source):
    return [UploadKey(row) for row in rows(source, "config/uploads.def", "CLP_UPLOAD_KEY")]


def types(source):
    """(name, text) of what can be recorded."""
    return [(row[1], row[2]) for row in rows(source, "config/types.def", "CLP_PROFILE_TYPE")]


def check_sentences(source):
    """(level, sentence) of what `clrpulse check` says in words of its own, values as N and ..."""
    found = []
    for macro in ("CLP_MACHINE_CHECK", "CLP_PROCESS_CHECK"):
        for row in rows(source, "agent/checks.def", macro):
            if row[3] != "%s":
                sentence = re.sub(r"%(?:ll|l|z)?[dux]", "N", row[3]).replace("%s", "...")
                found.append((row[1].lower(), sentence.replace("%%", "%")))
    return found


def healths(source):
    """(answer, status, meaning) of /healthz."""
    return [(row[2] + (" ..." if row[2].endswith(":") else ""), row[1], row[3])
            for row in rows(source, "agent/healths.def", "CLP_HEALTH")]


def metrics(source):
    """(scope, metric, meaning) of everything that the agent and the library count; `status --explain` says the same."""
    found = [("AGENT", "clrpulse_build_info", "1, with the version as a label"),
             ("AGENT", "clrpulse_targets", "processes by what the agent does with them")]
    prefixes = {"AGENT": "clrpulse_", "TARGET": "clrpulse_target_", "UPLOAD": "clrpulse_upload_"}
    for scope, key, kind, _, text in rows(source, "agent/numbers.def", "CLP_NUMBER"):
        name = prefixes[scope] + (key[:-3] + "_seconds" if key.endswith("_ns") else key)
        found.append((scope, name + ("_total" if kind == "SUM" else ""), text))
    found.append(("UPLOAD", "clrpulse_upload_dropped_total", "profiles that were given up, by reason"))
    for _, key, kind, unit, text in rows(source, "wire/counters.def", "CLP_COUNTER"):
        name = "clrpulse_library_" + key.removeprefix("library_") + ("_seconds" if unit == "nanoseconds" else "")
        found.append(("LIBRARY", name + ("_total" if kind == "SUM" else ""), text))
    return found
