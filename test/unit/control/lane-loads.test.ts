// Which lane a registry names to the senders that attach: its own counts of live slots and unclaimed binds, over a client plane without
// a single lane. What a lane would do to a receiver row is done by hand.

import { expect } from 'chai';
import type { AnchorEntry } from '../../../lib/control/anchor-entry.js';
import { AnchorRegistry } from '../../../lib/control/anchor-registry.js';
import type { Calls } from '../../../lib/control/calls.js';
import type { Messenger } from '../../../lib/control/messenger.js';
import { PeerBook } from '../../../lib/control/peer-book.js';
import { ClientPlane } from '../../../lib/lanes/client-plane.js';
import type { ClientPort } from '../../../lib/lanes/client-port.js';
import { rowIdentity } from '../../../lib/lanes/commands.js';
import { ClientRows, createClientRows, DEFAULT_RING_BYTES } from '../../../lib/plane/conduit.js';
import { encodeTcpEndpoints, encodeWorkerAddress } from '../../../lib/wire/address.js';
import { u64High, u64Low } from '../../../lib/wire/bytes.js';
import { abortAttach, anchorAttachRequest, anchorAttachResponse } from '../../../lib/wire/control.js';
import { DETACHED_BYTES, DROPPED_BYTES } from '../../../lib/wire/frame.js';
import { StreamCancelHandle } from '../../../lib/wire/handle.js';
import {
  ADDRESS_KEY_TCP,
  HANDLER_ANCHOR_ABORT_ATTACH,
  HANDLER_ANCHOR_ATTACH,
  MESSENGER_MUX_KEY,
} from '../../../lib/wire/names.js';
import { PeerInfo } from '../../../lib/wire/peer-info.js';

const LANES = 4;
const SIZES = { ringBytes: DEFAULT_RING_BYTES, rows: 1_024 };
const ROW_MASK = 0xffff;

function peerInfo(seed: number): PeerInfo {
  const endpoint = { name: '', host: '127.0.0.1', port: 1_000 + seed, prefixLength: 32, numaNode: null };
  const instance = `0000000${seed}-0000-4000-8000-000000000000`;
  return new PeerInfo(instance, encodeWorkerAddress([[ADDRESS_KEY_TCP, encodeTcpEndpoints([endpoint])]]));
}

type Handler = (payload: Uint8Array) => Uint8Array | Promise<Uint8Array>;

class Bench {
  readonly rows = new ClientRows(createClientRows(SIZES), SIZES);
  readonly handlers = new Map<string, Handler>();
  readonly registry: AnchorRegistry;
  readonly peers: readonly PeerInfo[] = [peerInfo(1), peerInfo(2)];
  private readonly plane: ClientPlane;
  private nextStream = 1n;

  constructor(rows = SIZES.rows) {
    const self = peerInfo(9);
    const events = {} as ConstructorParameters<typeof ClientPlane>[2];
    this.plane = new ClientPlane(this.rows, [], events, rows, false);
    const book = new PeerBook(self, { local: [], numaNode: undefined, uds: false }, () => {});
    for (const peer of this.peers) book.register(peer);
    const terms = {
      initialCredit: 4,
      slotByteBudget: 1_000,
      heartbeatIntervalMs: 60_000,
      acceptWindowMs: 180_000,
      unattachedTimeoutMs: undefined,
      lanes: LANES,
    };
    const calls = { signal: () => {} } as unknown as Calls;
    this.registry = new AnchorRegistry(self.workerId, this.plane, book, calls, terms, SIZES.rows);
    const messenger = { system: (name: string, handler: Handler) => this.handlers.set(name, handler) };
    this.registry.registerHandlers(messenger as unknown as Messenger);
  }

  /** One attach of a peer, and what it was told. The answer is there when the handler returns. */
  attach(options: { peer?: number; laneKey?: bigint; entry?: AnchorEntry } = {}) {
    const { entry = this.registry.create(), laneKey, peer = 0 } = options;
    const cancel = new StreamCancelHandle(this.peers[peer]!.workerId, this.nextStream++);
    const payload = anchorAttachRequest.encodeJson({
      handle: entry.handle,
      sessionId: 9n,
      streamCancelHandle: cancel,
      supportedTransportKeys: [MESSENGER_MUX_KEY],
      laneKey,
    });
    const answer = this.handlers.get(HANDLER_ANCHOR_ATTACH)!(payload);
    if (!(answer instanceof Uint8Array)) throw new Error('the answer waits for something');
    const response = anchorAttachResponse.decodeJson(answer);
    if (!response.ok) return { entry, cancel, lane: -1, session: 0n, reason: response.reason };
    return { entry, cancel, lane: response.value.lane, session: response.value.routingSessionId, reason: '' };
  }

  lanes(count: number): number[] {
    return Array.from({ length: count }, () => this.attach().lane);
  }

  abort({ entry, cancel }: { entry: AnchorEntry; cancel: StreamCancelHandle }): void {
    const request = abortAttach.encodeJson({ handle: entry.handle, streamCancelHandle: cancel });
    this.handlers.get(HANDLER_ANCHOR_ABORT_ATTACH)!(request);
  }

  /** A lane that hears of rows and does nothing about it. */
  deafLane(lane: number): void {
    const conduit = { drains: { add: () => true }, workerBell: { ring: () => {} } };
    this.plane.ports[lane] = { conduit } as unknown as ClientPort;
  }

  /** A lane claims the bind, whichever lane it is. */
  claim(session: bigint, entry: AnchorEntry, worker: number): boolean {
    const into = { row: 0, generation: 0, credit: 0, byteBudget: 0, heartbeatMs: 0 };
    const { local } = entry.handle;
    const row = u64Low(session) & ROW_MASK;
    const [anchorHi, anchorLo] = [u64High(local), u64Low(local)];
    return this.rows.receivers.claim(row, worker, anchorHi, anchorLo, u64High(session), u64Low(session), into);
  }

  /** What the client does with a lane's "retired"; `discard`: because the sender was silent. */
  retire(entry: AnchorEntry, discard = false): void {
    const feed = entry.feed!;
    this.rows.receivers.free(feed.row.row);
    feed.retired(discard);
  }
}

describe('control: loads of lanes', () => {
  let bench: Bench;
  beforeEach(() => {
    bench = new Bench();
  });
  afterEach(() => bench.registry.leaveAll());

  it('AL-23 an attach is answered within its handler, by a registry that no lane serves', () => {
    expect(bench.lanes(6)).to.deep.equal([0, 1, 2, 3, 0, 1]);
  });

  it('AL-10 only the peer that asks counts: another finds every lane empty', () => {
    expect(bench.lanes(2)).to.deep.equal([0, 1]);
    expect([bench.attach({ peer: 1 }).lane, bench.attach({ peer: 1 }).lane, bench.attach().lane]).to.deep.equal([
      0, 1, 2,
    ]);
  });

  it('AL-17 a keyed bind counts on its lane', () => {
    expect(bench.attach({ laneKey: 6n }).lane).to.equal(0);
    expect(bench.lanes(4)).to.deep.equal([1, 2, 3, 0]);
  });

  it('AL-18 a slot counts on the lane that was chosen, from its bind to its end, whichever lane claims it', () => {
    const placed = [0, 1, 2, 3].map(() => bench.attach());
    // A sender with one lane: worker 0 claims all of them.
    for (const { session, entry } of placed) expect(bench.claim(session, entry, 0)).to.equal(true);
    expect(bench.lanes(4)).to.deep.equal([0, 1, 2, 3]);
    bench.retire(placed[2]!.entry);
    expect(bench.attach().lane).to.equal(2);
    bench.retire(placed[3]!.entry);
    bench.retire(placed[1]!.entry);
    expect(bench.lanes(3)).to.deep.equal([1, 3, 0]);
  });

  it('AL-24 an attach whose sender cannot come gives bind and lane back at once', () => {
    const [first, second] = [bench.attach(), bench.attach()];
    bench.abort(second);
    expect(bench.claim(second.session, second.entry, 0), 'the bind is gone').to.equal(false);
    expect(bench.attach({ entry: second.entry }).lane, 'and the anchor is free').to.equal(1);
    bench.abort(second);
    expect(bench.attach().lane, 'an abort of an earlier attach ends no later one').to.equal(2);
    first.entry.cancel();
    expect(bench.claim(first.session, first.entry, 0)).to.equal(false);
    expect(bench.attach().lane).to.equal(0);
  });

  it('AL-24 an attach that finds no row for its bind counts nowhere', () => {
    bench.registry.leaveAll();
    bench = new Bench(2);
    const [first] = [bench.attach(), bench.attach()];
    expect(bench.attach().reason).to.include('maxStreams');
    bench.abort(first);
    expect(bench.attach().lane).to.equal(0);
  });

  it('AL-24 a bind that expires gives its lane back, once, also when it is let go of afterwards', () => {
    const placed = [0, 1, 2, 3].map(() => bench.attach());
    const { entry } = placed[1]!;
    const feed = entry.feed!;
    expect(entry.neverOpened(feed)).to.equal(true);
    expect(entry.neverOpened(feed)).to.equal(false);
    entry.cancel();
    feed.withdraw();
    feed.retired(false);
    expect(bench.lanes(3)).to.deep.equal([1, 0, 1]);
  });

  it('a row that is used again names another session, and the old one claims nothing', () => {
    const first = bench.attach();
    bench.abort(first);
    for (let i = 0; i < SIZES.rows; i++) {
      const next = bench.attach({ entry: first.entry });
      expect(next.session).to.not.equal(first.session);
      if ((u64Low(next.session) & ROW_MASK) === (u64Low(first.session) & ROW_MASK)) {
        expect(next.session).to.equal(BigInt(rowIdentity(2, 0, u64Low(first.session) & ROW_MASK)));
        expect(bench.claim(first.session, first.entry, 0)).to.equal(false);
        expect(bench.claim(next.session, first.entry, 0)).to.equal(true);
        return;
      }
      bench.abort(next);
    }
    throw new Error('the row was not used again');
  });
});

describe('control: a feed whose sender fell silent', () => {
  let bench: Bench;
  beforeEach(() => {
    bench = new Bench();
  });
  afterEach(() => bench.registry.leaveAll());

  const RECORD = Uint8Array.of(1, 2, 3);
  /** Records that a reader still finds, sentinels that this node put there included. */
  function unread(entry: AnchorEntry): Uint8Array[] {
    const found: Uint8Array[] = [];
    while (entry.next()) {
      found.push(entry.frame.slice(entry.frameOffset, entry.frameOffset + entry.frameLength));
      entry.take();
    }
    return found;
  }

  it('AH-07 takes its anchor out of the registry at once; a reader that comes later finds Dropped alone', () => {
    const { entry, session, lane } = bench.attach();
    expect(bench.claim(session, entry, 0)).to.equal(true);
    for (let i = 0; i < 3; i++) entry.feed!.record(RECORD, 0, RECORD.length);
    bench.retire(entry, true);
    expect(entry.removed).to.equal(true);
    expect(bench.attach({ entry }).reason).to.not.equal('');
    expect(unread(entry)).to.deep.equal([DROPPED_BYTES]);
    expect(bench.lanes(1), 'its lane is free').to.deep.equal([lane]);
  });

  it('any other end of a slot leaves what was delivered to its reader', () => {
    const { entry, session } = bench.attach();
    bench.claim(session, entry, 0);
    for (let i = 0; i < 3; i++) entry.feed!.record(RECORD, 0, RECORD.length);
    bench.retire(entry);
    expect(entry.removed).to.equal(false);
    expect(unread(entry)).to.deep.equal([RECORD, RECORD, RECORD, DROPPED_BYTES]);
  });

  it('one that was taken from its anchor before ends nothing of the sender that came after', () => {
    bench.deafLane(0);
    const first = bench.attach();
    bench.claim(first.session, first.entry, 0);
    const old = first.entry.feed!;
    first.entry.detach();
    const second = bench.attach({ entry: first.entry });
    second.entry.feed!.record(RECORD, 0, RECORD.length);
    bench.rows.receivers.free(old.row.row);
    old.retired(true);
    expect([second.entry.removed, unread(second.entry)]).to.deep.equal([false, [DETACHED_BYTES, RECORD]]);
  });
});
