"""A pprof reader of its own: it shares nothing with the encoder and decoder in C, so an error there
cannot hide itself.  Field numbers are those of github.com/google/pprof's profile.proto."""

import gzip
import struct


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(data):
    """Yields (number, value) of one message; values are ints or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif kind == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("a field runs over the end of its message")
            value, at = data[at:at + size], at + size
        elif kind == 5:
            value, at = struct.unpack_from("<I", data, at)[0], at + 4
        else:
            raise ValueError(f"wire type {kind} is not used by pprof")
        yield number, value


def _numbers(value):
    """A repeated integer field: packed bytes or one value."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


class Sample:
    def __init__(self, stack, system, values, labels):
        self.stack = stack      # function names, leaf first, inlined functions as frames
        self.system = system    # the same as system names
        self.values = values    # by sample type
        self.labels = labels

    def value(self, kind="cpu"):
        return self.values.get(kind, 0)

    def thread(self):
        return self.labels.get("thread_name")


class Profile:
    def __init__(self, data):
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        self._strings = [value.decode("utf-8") for number, value in fields(data) if number == 6]
        if not self._strings or self._strings[0] != "":
            raise ValueError("string_table[0] is not the empty string")
        self._functions, self._locations, self.mappings = {}, {}, {}
        self.sample_types, self.comments, self.samples = [], [], []
        self.duration_ns = self.time_ns = self.period = 0
        self.period_type = self.default_sample_type = None
        raw_samples = []
        for number, value in fields(data):
            if number == 1:
                self.sample_types.append(self._value_type(value))
            elif number == 2:
                raw_samples.append(value)
            elif number == 3:
                self._mapping(value)
            elif number == 4:
                self._location(value)
            elif number == 5:
                self._function(value)
            elif number == 9:
                self.time_ns = value
            elif number == 10:
                self.duration_ns = value
            elif number == 11:
                self.period_type = self._value_type(value)
            elif number == 12:
                self.period = value
            elif number == 13:
                self.comments += [self._strings[i] for i in _numbers(value)]
            elif number == 14:
                self.default_sample_type = self._strings[value]
        for raw in raw_samples:
            self.samples.append(self._sample(raw))

    def _value_type(self, data):
        got = dict(fields(data))
        return self._strings[got.get(1, 0)], self._strings[got.get(2, 0)]

    def _mapping(self, data):
        got = dict(fields(data))
        self.mappings[got[1]] = {
            "start": got.get(2, 0), "limit": got.get(3, 0), "offset": got.get(4, 0),
            "file": self._strings[got.get(5, 0)], "build_id": self._strings[got.get(6, 0)],
        }

    def _function(self, data):
        got = dict(fields(data))
        self._functions[got[1]] = (self._strings[got.get(2, 0)], self._strings[got.get(3, 0)])

    def _location(self, data):
        identity, mapping, lines = 0, 0, []
        for number, value in fields(data):
            if number == 1:
                identity = value
            elif number == 2:
                mapping = value
            elif number == 4:
                lines.append(dict(fields(value)).get(1, 0))
        self._locations[identity] = (mapping, lines)

    def _frames(self, location):
        mapping, lines = self._locations[location]
        if mapping and mapping not in self.mappings:
            raise ValueError("a location names a mapping that does not exist")
        if lines:
            return [self._functions[line] for line in lines]
        name = "?" + self.mappings[mapping]["file"] if mapping else "?"
        return [(name, name)]

    def _label(self, data):
        got = dict(fields(data))
        key = self._strings[got.get(1, 0)]
        return key, self._strings[got[2]] if got.get(2) else _signed(got.get(3, 0))

    def _sample(self, data):
        locations, values, labels = [], [], {}
        for number, value in fields(data):
            if number == 1:
                locations += _numbers(value)
            elif number == 2:
                values += [_signed(v) for v in _numbers(value)]
            elif number == 3:
                key, text = self._label(value)
                if key in labels:
                    raise ValueError(f"label {key} occurs twice in one sample")
                labels[key] = text
        if len(values) != len(self.sample_types):
            raise ValueError("a sample has not one value for each sample type")
        frames = [frame for location in locations for frame in self._frames(location)]
        named = {kind: value for (kind, _), value in zip(self.sample_types, values)}
        return Sample([f[0] for f in frames], [f[1] for f in frames], named, labels)

    def number(self, name):
        """Of a comment `NAME=NUMBER UNIT`; None where there is none."""
        return next((int(c.split("=")[1].split()[0]) for c in self.comments if c.startswith(name + "=")), None)

    def total(self, kind="cpu", where=lambda sample: True):
        return sum(sample.value(kind) for sample in self.samples if where(sample))

    def by_thread(self, kind="cpu"):
        totals = {}
        for sample in self.samples:
            key = sample.thread()
            totals[key] = totals.get(key, 0) + sample.value(kind)
        return totals

    def top(self, count=15, kind="cpu"):
        """The heaviest stacks as text, for failure messages."""
        heavy = sorted(self.samples, key=lambda s: -s.value(kind))[:count]
        return "\n".join(f"{s.value(kind) / 1e6:10.1f} ms  {s.thread()}: " + " < ".join(s.stack[:12])
                         for s in heavy)


def load(path):
    with open(path, "rb") as file:
        return Profile(file.read())


def is_function(frame, name):
    """frame is the function `name`: overloads carry a parameter list, generics may carry arguments."""
    return frame == name or frame.startswith(name + "(") or frame.startswith(name + "<")
