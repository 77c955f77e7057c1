// resp_client.js PORT - talks to weir through ioredis; prints what came back as JSON.
//
// SPDX-License-Identifier: Apache-2.0
const Redis = require("ioredis");

async function main() {
  const redis = new Redis({ host: "127.0.0.1", port: Number(process.argv[2]), maxRetriesPerRequest: 1 });
  const one = await redis.call("CL.THROTTLE", "ioredis", 2, 1, 60);
  const pipeline = redis.pipeline();
  for (let i = 0; i < 4; i++) pipeline.call("CL.THROTTLE", "ioredis", 2, 1, 60);
  const many = (await pipeline.exec()).map(([error, reply]) => (error ? String(error) : reply));
  const error = await redis.call("CL.THROTTLE", "ioredis", 2, 0, 60).catch((e) => e.message);
  console.log(JSON.stringify({ one, many, error, ping: await redis.ping() }));
  await redis.quit();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
