// rls_client.js ADDRESS - makes gRPC calls through @grpc/grpc-js, as node_client.py asks for them.
//
//   stdin    {"id": 1, "path": "/package.Service/Method", "data": BASE64, "timeout_ms": 10000, "is_stream": false}
//            {"id": 1, "is_cancelled": true}
//   stdout   {"id": 1, "data": BASE64}      each message of the answer
//            {"id": 1, "code": 0, "details": ""}      the end
//
// Messages are bytes both ways, so that the cases are written once, in Python.
// SPDX-License-Identifier: Apache-2.0
const grpc = require("@grpc/grpc-js");
const readline = require("readline");

const client = new grpc.Client(process.argv[2], grpc.credentials.createInsecure(), {
  "grpc.max_send_message_length": -1,
  "grpc.max_receive_message_length": -1,
});
const calls = new Map();
const same = (bytes) => bytes;

function say(id, what) {
  process.stdout.write(JSON.stringify({ id, ...what }) + "\n");
}

function end(id, code, details) {
  calls.delete(id);
  say(id, { code, details });
}

function unary({ id, path, data, timeout_ms }) {
  const options = { deadline: Date.now() + timeout_ms };
  return client.makeUnaryRequest(path, same, same, data, options, (error, answer) => {
    if (!error) say(id, { data: answer.toString("base64") });
    end(id, error ? error.code : 0, error ? error.details : "");
  });
}

function stream({ id, path, data }) {
  const call = client.makeServerStreamRequest(path, same, same, data);
  call.on("data", (message) => say(id, { data: message.toString("base64") }));
  call.on("error", () => {}); // what it was comes with the status
  call.on("status", ({ code, details }) => end(id, code, details));
  return call;
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const asked = JSON.parse(line);
  if (asked.is_cancelled) return calls.get(asked.id)?.cancel();
  const data = Buffer.from(asked.data, "base64");
  calls.set(asked.id, (asked.is_stream ? stream : unary)({ ...asked, data }));
}).on("close", () => process.exit(0));
