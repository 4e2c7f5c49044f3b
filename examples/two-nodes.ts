// The smallest whole program: a consumer asks a producer for words and reads them as they come. The README shows this file.

import { StreamAnchorHandle, typedUnary, Velo } from '../lib/index.js';

const consumer = await Velo.create();
const producer = await Velo.create({ flushPolicy: 'manual' });
consumer.registerPeer(producer.peerInfo);
producer.registerPeer(consumer.peerInfo);

// A node is usually a process of its own. The handle travels in the request; the tokens travel in the stream.
producer.registerHandler(
  'generate',
  typedUnary(async (request) => {
    const { handle, words } = request as { handle: { hi: bigint; lo: bigint }; words: string[] };
    const sender = await producer.attachAnchor<string>(StreamAnchorHandle.fromJSON(handle));
    for (const word of words) {
      await sender.send(word);
      producer.flushBatch(); // once per pass: here a pass is one word
    }
    await sender.finalize();
  }),
);

const anchor = consumer.createAnchor<string>();
const request = { handle: anchor.handle.toJSON(), words: ['many ', 'streams, ', 'one ', 'write'] };
const answered = consumer.typedUnary(producer.peerInfo, 'generate', request);
for await (const word of anchor) process.stdout.write(word);
await answered;
await Promise.all([consumer.close(), producer.close()]);
