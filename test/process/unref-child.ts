// A child with one open connection and nothing else to live for: it ends by itself only when the connection is
// unreferenced.

import { dial, numberedFrame, RecordedFrame } from './socket-kit.js';

const [port, mode] = process.argv.slice(2);
const { connection } = dial(Number(port));
if (mode === 'unref') connection.unref();
connection.submit(
  new RecordedFrame(numberedFrame(0), [], () => {
    process.send?.('written', () => process.disconnect());
  }),
);
// An unreferenced dial may not outlive the module: hold the process until the frame is out.
const hold = setInterval(() => {
  if (connection.state === 'open' && connection.queuedFrames === 0) clearInterval(hold);
}, 5);
