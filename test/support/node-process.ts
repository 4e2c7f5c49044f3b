// A node in a process of its own (`node-child`), as its parent drives it: over IPC, and with signals.

import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import {
  PeerInfo,
  StreamAnchorHandle,
  type StreamSender,
  stringifyJson,
  type Velo,
  type VeloOptions,
} from '../../lib/index.js';
import {
  type ChildReply,
  type ChildRequest,
  type Reading,
  type ReadingPlan,
  replyValue,
  type SenderState,
} from '../process/node-child.js';

const CHILD = fileURLToPath(new URL('../process/node-child.js', import.meta.url));

type Body<R> = R extends { readonly id: number } ? Omit<R, 'id'> : never;

export class NodeProcess {
  private readonly waiting = new Map<number, (value: unknown) => void>();
  private nextId = 1;
  private readonly exited: Promise<unknown>;

  private constructor(private readonly process: ChildProcess) {
    this.exited = new Promise((resolve) => process.once('exit', resolve));
    process.on('message', (message) => {
      const reply = message as ChildReply;
      this.waiting.get(reply.id)?.(replyValue(reply));
      this.waiting.delete(reply.id);
    });
  }

  static async start(options: VeloOptions): Promise<NodeProcess> {
    const child = new NodeProcess(fork(CHILD, [JSON.stringify(options)], { execArgv: [] }));
    await new Promise((resolve) => child.waiting.set(0, resolve));
    return child;
  }

  private call(request: Body<ChildRequest>): Promise<unknown> {
    const id = this.nextId++;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.process.send({ ...request, id });
    });
  }

  async meet(node: Velo): Promise<void> {
    const info = await this.call({ do: 'register', info: JSON.stringify(node.peerInfo) });
    node.registerPeer(PeerInfo.fromJSON(info));
  }

  /** A stream from `node` to this process, read by plan. */
  async stream(
    node: Velo,
    plan: ReadingPlan,
  ): Promise<{ sender: StreamSender<number>; result: () => Promise<Reading> }> {
    const made = (await this.call({ do: 'anchor', plan })) as { anchor: number; handle: unknown };
    const sender = await node.attachAnchor<number>(StreamAnchorHandle.fromJSON(made.handle));
    return { sender, result: async () => (await this.call({ do: 'result', anchor: made.anchor })) as Reading };
  }

  /** Attaches a sender of this process. */
  async attach(handle: StreamAnchorHandle): Promise<ProcessSender> {
    const sender = (await this.call({ do: 'attach', handle: stringifyJson(handle.toJSON()) })) as number;
    return {
      send: async (...items) => {
        await this.call({ do: 'send', sender, items });
      },
      finalize: async () => {
        await this.call({ do: 'finalize', sender });
      },
      state: async () => (await this.call({ do: 'sender', sender })) as SenderState,
    };
  }

  /** SIGSTOP and SIGCONT: as a machine that is paged out, or a debugger. */
  freeze(): void {
    this.process.kill('SIGSTOP');
  }

  thaw(): void {
    this.process.kill('SIGCONT');
  }

  /** Without a word. */
  async kill(): Promise<void> {
    this.process.kill('SIGKILL');
    await this.exited;
  }

  async end(): Promise<void> {
    this.process.send({ id: this.nextId++, do: 'close' });
    await this.exited;
  }
}

/** A sender in the process. */
export interface ProcessSender {
  send(...items: number[]): Promise<void>;
  finalize(): Promise<void>;
  state(): Promise<SenderState>;
}
