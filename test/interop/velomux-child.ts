// A velomux node in a process of its own, for tests that kill it. Run as a program it is the child; imported, its driver.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import {
  PeerInfo,
  parseJson,
  StreamAnchorHandle,
  type StreamSender,
  stringifyJson,
  unaryHandler,
  Velo,
} from '../../lib/index.js';
import { bytes, consume } from './kit.js';
import { itemsOf } from './payload.js';
import type { Consumed } from './rust-peer.js';

/** JSON texts: handles do not fit the numbers of plain IPC. */
type Request =
  | {
      readonly do: 'produce';
      readonly handle: unknown;
      readonly sizes: readonly number[];
      readonly seed: number;
    }
  | { readonly do: 'finish'; readonly sizes: readonly number[]; readonly seed: number }
  | { readonly do: 'anchor'; readonly heartbeatMs: number };

type Answer =
  | { readonly kind: 'hanging' }
  | { readonly kind: 'anchor'; readonly handle: unknown }
  | { readonly kind: 'consumed'; readonly consumed: Consumed };

export class VelomuxChild {
  info!: PeerInfo;
  private readonly answers: Answer[] = [];
  private readonly waiting: { readonly kind: Answer['kind']; readonly resolve: (answer: Answer) => void }[] = [];

  private constructor(private readonly child: ChildProcess) {
    child.on('message', (text) => {
      const answer = parseJson(text as string) as Answer;
      const at = this.waiting.findIndex(({ kind }) => kind === answer.kind);
      if (at < 0) this.answers.push(answer);
      else this.waiting.splice(at, 1)[0]!.resolve(answer);
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
    this.ask({ do: 'produce', handle, sizes, seed });
  }

  /** Sends more items on the stream that `produce` opened, and finalizes it. */
  finish(sizes: readonly number[], seed: number): void {
    this.ask({ do: 'finish', sizes, seed });
  }

  /** An anchor of the child, which is read to its end. */
  async anchor(heartbeatMs: number): Promise<{ handle: StreamAnchorHandle; consumed: Promise<Consumed> }> {
    this.ask({ do: 'anchor', heartbeatMs });
    const { handle } = await this.answer('anchor');
    return {
      handle: StreamAnchorHandle.fromJSON(handle),
      consumed: this.answer('consumed').then(({ consumed }) => consumed),
    };
  }

  /** Resolves once the handler `hang` has a call. */
  async hanging(): Promise<void> {
    await this.answer('hanging');
  }

  /** Stops the process where it stands, until `thaw`. */
  freeze(): void {
    this.child.kill('SIGSTOP');
  }

  thaw(): void {
    this.child.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill('SIGKILL');
    await once(this.child, 'exit');
  }

  private ask(request: Request): void {
    this.child.send(stringifyJson(request));
  }

  private answer<K extends Answer['kind']>(kind: K): Promise<Extract<Answer, { kind: K }>> {
    return new Promise((resolve) => {
      const at = this.answers.findIndex((answer) => answer.kind === kind);
      const take = (answer: Answer) => resolve(answer as Extract<Answer, { kind: K }>);
      if (at < 0) this.waiting.push({ kind, resolve: take });
      else take(this.answers.splice(at, 1)[0]!);
    });
  }
}

function tell(answer: Answer): void {
  process.send!(stringifyJson(answer));
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
      tell({ kind: 'hanging' });
      return new Promise<undefined>(() => {});
    }),
  );
  let sender: StreamSender<Uint8Array>;
  const send = async (request: Exclude<Request, { do: 'anchor' }>) => {
    if (request.do === 'produce') sender = await node.attachAnchor(StreamAnchorHandle.fromJSON(request.handle), bytes);
    for (const item of itemsOf(request.sizes, request.seed)) await sender.send(item);
    if (request.do === 'finish') await sender.finalize();
  };
  let sent: Promise<unknown> = Promise.resolve();
  process.on('message', (text: string) => {
    const request = parseJson(text) as unknown as Request;
    if (request.do !== 'anchor') {
      sent = sent.then(() => send(request));
      return;
    }
    const anchor = node.createAnchor({ ...bytes, heartbeatIntervalMs: request.heartbeatMs });
    tell({ kind: 'anchor', handle: anchor.handle });
    void consume(anchor).then((consumed) => tell({ kind: 'consumed', consumed }));
  });
  process.on('disconnect', () => process.exit());
  process.send!(JSON.stringify(node.peerInfo));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv[2]!);
