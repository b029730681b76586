// Independent receivers for the tests of delivery: Connect's own server for the calls of Pyroscope and
// Parca, busboy for Datadog's form.  Keeps every request it took, as files, for the test to look at.
//
//     node receiver.js PACKAGES DESCRIPTORS OUT [unix socket]
//
// Prints its port. POST /_answer/STATUS makes every later request end with that status (0: as usual).
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const zlib = require('zlib');
const { createRequire } = require('module');

const [packages, descriptors, out, socket] = process.argv.slice(2);
const need = createRequire(path.join(packages, 'node_modules', 'x.js'));
const { connectNodeAdapter } = need('@connectrpc/connect-node');
const { ConnectError, Code } = need('@connectrpc/connect');
const { createFileRegistry, fromBinary, toJson } = need('@bufbuild/protobuf');
const { FileDescriptorSetSchema } = need('@bufbuild/protobuf/wkt');
const busboy = need('busboy');

const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, fs.readFileSync(descriptors)));
let count = 0;

function keep(kind, request, fields, files) {
    const name = String(count++).padStart(6, '0');
    const names = files.map(({ name: part, data }, i) => {
        const file = `${name}-${i}.bin`;
        fs.writeFileSync(path.join(out, file), data);
        return { part, file };
    });
    const headers = request.headers instanceof Headers
        ? Object.fromEntries(request.headers.entries()) : request.headers;
    const json = JSON.stringify({ kind, url: request.url, headers, fields, files: names });
    fs.writeFileSync(path.join(out, `${name}.part`), json);
    fs.renameSync(path.join(out, `${name}.part`), path.join(out, `${name}.json`));
}

// The order and the words are those of the public server.
function checkSeries(labels) {
    const names = labels.map((l) => l.name);
    if (!names.includes('__name__')) throw new ConnectError('no __name__', Code.InvalidArgument);
    if (new Set(names).size !== names.length) throw new ConnectError('label twice', Code.InvalidArgument);
    if (names.length > 30) throw new ConnectError('too many labels', Code.InvalidArgument);
    for (const { name, value } of labels) {
        if (!/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(name)) throw new ConnectError(`label ${name}`, Code.InvalidArgument);
        if (name.length > 1024 || !value.length || value.length > 2048) throw new ConnectError('label size', Code.InvalidArgument);
    }
}

// What the public servers refuse in a profile. Sequential: Parca's reader takes ids for positions.
function checkProfile(bytes, sequential) {
    const plain = bytes[0] === 0x1f && bytes[1] === 0x8b ? zlib.gunzipSync(bytes) : bytes;
    if (plain.length > 4 << 20) throw new ConnectError('too large', Code.InvalidArgument);
    let p;
    try {
        p = fromBinary(registry.getMessage('pprof.check.Profile'), plain); // refuses text that is no UTF-8
    } catch (error) {
        throw new ConnectError(`no pprof: ${error.message}`, Code.InvalidArgument);
    }
    const refuse = (why) => { throw new ConnectError(why, Code.InvalidArgument); };
    if (p.stringTable[0] !== '') refuse('string_table[0]');
    for (const { type, unit } of [...p.sampleType, p.periodType]) {
        for (const at of [type, unit]) {
            const text = p.stringTable[Number(at)];
            if (!/^[a-zA-Z_][a-zA-Z0-9_]*$/.test(text)) refuse(`type ${text}`);
        }
    }
    if (p.sample.length > 16000) refuse('too many samples');
    const functions = new Set(p.function.map((f) => f.id)), locations = new Set(p.location.map((l) => l.id));
    if (functions.has(0n) || locations.has(0n)) refuse('id 0');
    for (const s of p.sample) {
        if (s.value.length !== p.sampleType.length) refuse('number of values');
        if (s.locationId.length > 1000) refuse('too deep');
        if (!s.locationId.every((id) => locations.has(id))) refuse('no such location');
    }
    if (!p.location.every((l) => l.line.every((n) => functions.has(n.functionId)))) refuse('no such function');
    for (const table of [p.mapping, p.location, p.function]) {
        if (sequential && table.some((entry, at) => entry.id !== BigInt(at + 1))) refuse('ids are not sequential');
    }
}

const pairs = (labels) => Object.fromEntries(labels.map((l) => [l.name, l.value]));

function takeSeries(kind, request, context, labelsOf) {
    for (const series of request.series) {
        const labels = labelsOf(series);
        checkSeries(labels);
        for (const { rawProfile } of series.samples) checkProfile(rawProfile, kind === 'parca');
        keep(kind, { headers: context.requestHeader, url: context.method.name }, {
            labels: pairs(labels), id: series.samples[0].ID, normalized: request.normalized,
        }, series.samples.map((s) => ({ name: 'profile', data: s.rawProfile })));
    }
    return {};
}

const adapter = connectNodeAdapter({
    routes: (router) => {
        router.service(registry.getService('push.v1.PusherService'), {
            push: (request, context) => takeSeries('pyroscope', request, context, (s) => s.labels),
        });
        router.service(registry.getService('parca.profilestore.v1alpha1.ProfileStoreService'), {
            writeRaw: (request, context) => takeSeries('parca', request, context, (s) => s.labels.labels),
        });
    },
});

function body(request, done) {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
        let data = Buffer.concat(pieces);
        if (request.headers['content-encoding'] === 'gzip') data = zlib.gunzipSync(data);
        done(data);
    });
}

// By a schema that is not the agent's; unknown fields would be an error of the agent's.
function otlp(request, response) {
    body(request, (data) => {
        const schema = registry.getMessage('opentelemetry.check.ExportProfilesServiceRequest');
        const message = fromBinary(schema, data);
        const json = toJson(schema, message, { alwaysEmitImplicit: true });
        const unknown = JSON.stringify(message, (key, value) =>
            typeof value === 'bigint' ? String(value) : value).includes('$unknown');
        keep('otlp', request, { message: json, unknown }, [{ name: 'body', data }]);
        response.writeHead(200, { 'Content-Type': 'application/x-protobuf' });
        response.end();
    });
}

function parts(request, done) {
    const files = [], fields = {};
    const form = busboy({ headers: request.headers });
    form.on('file', (name, stream, info) => {
        const pieces = [];
        stream.on('data', (piece) => pieces.push(piece));
        stream.on('end', () => files.push({ name, data: Buffer.concat(pieces), info }));
    });
    form.on('field', (name, value) => { fields[name] = value; });
    form.on('close', () => done(files, fields));
    request.pipe(form);
}

function datadog(request, response) {
    parts(request, (files, fields) => {
        const event = files.find((f) => f.name === 'event');
        let parsed = null;
        try { parsed = JSON.parse((event ? event.data.toString() : fields.event)); } catch { /* below */ }
        const have = files.map((f) => f.name);
        if (!parsed || parsed.version !== '4' || !parsed.tags_profiler || !parsed.family ||
            !parsed.attachments.every((a) => have.includes(a))) {
            response.writeHead(400);
            response.end('bad event');
            return;
        }
        keep('datadog', request, { event: parsed, names: files.map((f) => [f.name, f.info.filename]) }, files);
        response.writeHead(202);
        response.end();
    });
}

// Pyroscope's older call, which its client for Node uses: the name has labels in braces. The profile is the body
// when the format is said to be pprof; else it is in a form, as older clients send it.
function ingest(request, response) {
    const query = new URL(request.url, 'http://x').searchParams, raw = query.get('format') === 'pprof';
    const take = (data) => {
        try {
            if (!/^[a-zA-Z0-9_./-]+(\{[^{}]*\})?$/.test(query.get('name'))) throw new Error('name');
            if (!data) throw new Error('no profile');
            checkProfile(data, false);
        } catch (error) {
            response.writeHead(422);
            response.end(JSON.stringify({ code: 'unknown', message: error.message }));
            return;
        }
        keep('ingest', request, { query: Object.fromEntries(query) }, [{ name: 'profile', data }]);
        response.writeHead(200);
        response.end();
    };
    if (raw) body(request, take);
    else parts(request, (files) => take(files.find((f) => f.name === 'profile')?.data));
}

function raw(kind) {
    return (request, response) => body(request, (data) => {
        keep(kind, request, {}, [{ name: 'body', data }]);
        response.writeHead(200);
        response.end();
    });
}

const routes = [
    [/^\/profiling\/v1\/input$|^\/api\/v2\/profile$/, datadog],
    [/^\/v1development\/profiles$/, otlp],
    [/^\/ingest\?/, ingest],
    [/^\/plain/, raw('http')],
];

const server = http.createServer((request, response) => {
    const url = request.url.replace(/^\/prefix/, '');
    request.url = url;
    for (const [pattern, handler] of routes) {
        if (pattern.test(url)) return handler(request, response);
    }
    adapter(request, response);
});
server.on('checkContinue', (request, response) => { response.writeHead(417); response.end(); });
server.listen(socket ? { path: socket } : { port: 0, host: '127.0.0.1' }, () =>
    console.log(socket ? 0 : server.address().port));
