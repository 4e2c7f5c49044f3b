// A velomux node in a process of its own, for tests that kill it. Run as a program it is the child; imported, its driver.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import {
  PeerInfo,
  parseJson,
  rawCodec,
  StreamAnchorHandle,
  stringifyJson,
  unaryHandler,
  Velo,
} from '../../lib/index.js';
import { itemsOf } from './payload.js';

/** JSON texts: handles do not fit the numbers of plain IPC. */
interface ProduceRequest {
  readonly handle: unknown;
  readonly sizes: readonly number[];
  readonly seed: number;
}

export class VelomuxChild {
  info!: PeerInfo;
  private isHanging = false;
  private onHanging = () => {};

  private constructor(private readonly child: ChildProcess) {
    child.on('message', () => {
      this.isHanging = true;
      this.onHanging();
    });
  }

  /** Starts a node that knows `peer`. */
  static async start(peer: PeerInfo): Promise<VelomuxChild> {
    const child = fork(fileURLToPath(import.meta.url), [JSON.stringify(peer)]);
    const [info] = (await once(child, 'message')) as [string];
    const driver = new VelomuxChild(child);
    driver.info = PeerInfo.fromJSON(JSON.parse(info));
    return driver;
  }

  /** Attaches to an anchor, sends the items and keeps the stream open. */
  async produce(handle: StreamAnchorHandle, sizes: readonly number[], seed: number): Promise<void> {
    this.child.send(stringifyJson({ handle, sizes, seed }));
  }

  /** Resolves once the handler `hang` has a call. */
  hanging(): Promise<void> {
    if (this.isHanging) return Promise.resolve();
    return new Promise((resolve) => {
      this.onHanging = resolve;
    });
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill('SIGKILL');
    await once(this.child, 'exit');
  }
}

async function main(peer: string): Promise<void> {
  const node = await Velo.create();
  node.registerPeer(PeerInfo.fromJSON(JSON.parse(peer)));
  node.registerHandler(
    'echo',
    unaryHandler((payload) => payload),
  );
  node.registerHandler(
    'hang',
    unaryHandler(() => {
      process.send!('hanging');
      return new Promise<undefined>(() => {});
    }),
  );
  process.on('message', (text: string) => {
    const { handle, sizes, seed } = parseJson(text) as unknown as ProduceRequest;
    void node.attachAnchor(StreamAnchorHandle.fromJSON(handle), { codec: rawCodec() }).then(async (sender) => {
      for (const item of itemsOf(sizes, seed)) await sender.send(item);
    });
  });
  process.on('disconnect', () => process.exit());
  process.send!(JSON.stringify(node.peerInfo));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv[2]!);
