// Staged batches and the pulls they wait for, over an intake that fetches when a test says so.

import { expect } from 'chai';
import type { Fetched } from '../../../lib/lanes/batch-shelf.js';
import type { PeerLink } from '../../../lib/lanes/peer-link.js';
import { MAX_WAITING_BATCHES, MAX_WAITING_PER_PEER, StagedBatches } from '../../../lib/lanes/staged-batches.js';
import type { RequestEnvelope } from '../../../lib/wire/envelope.js';
import { HEADER_RENDEZVOUS } from '../../../lib/wire/names.js';

interface Pull {
  readonly handle: string;
  readonly end: (fetched: Fetched | Error) => void;
}

class Bench {
  /** Pulls under way, in the order they began. */
  readonly pulls: Pull[] = [];
  readonly log: string[] = [];
  private readonly tracked: Promise<void>[] = [];
  readonly batches = new StagedBatches({
    take: ({ headers }) =>
      new Promise((resolve, reject) => {
        const handle = headers!.get(HEADER_RENDEZVOUS)!;
        this.pulls.push({ handle, end: (got) => (got instanceof Error ? reject(got) : resolve(got)) });
      }),
    track: (work) => void this.tracked.push(work),
  });

  accept(peer: PeerLink, handle: string): void {
    const envelope = { headers: new Map([[HEADER_RENDEZVOUS, handle]]) } as unknown as RequestEnvelope;
    this.batches.accept(
      envelope,
      peer,
      (bytes) => this.log.push(`${handle} ${bytes.length}`),
      (text) => this.log.push(`${handle} ${text}`),
    );
  }

  /** The oldest pull comes to an end. */
  async end(got: Fetched | Error): Promise<void> {
    this.pulls.shift()!.end(got);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

const peerOf = (label: string) => ({ label }) as PeerLink;
const settled = () => new Promise((resolve) => setImmediate(resolve));

describe('staged batches', () => {
  const [a, b] = [peerOf('a'), peerOf('b')];
  let bench: Bench;
  let ends = 0;
  const end = (): void => {
    ends += 1;
  };
  const bytes = (length: number): Fetched => ({ bytes: new Uint8Array(length), end });
  beforeEach(() => {
    bench = new Bench();
    ends = 0;
  });

  it('a name that is too long for a handle is not kept, nor a part of it', async () => {
    bench.accept(a, '7'.repeat(64));
    bench.accept(b, '7'.repeat(100_000));
    await settled();
    expect(bench.pulls.map(({ handle }) => handle)).to.deep.equal(['7'.repeat(64), '']);
  });

  it('of one peer come one after another, whatever became of the one before; peers do not wait for each other', async () => {
    for (const handle of ['1', '2', '3']) bench.accept(a, handle);
    bench.accept(b, '9');
    await settled();
    expect(bench.pulls.map(({ handle }) => handle)).to.deep.equal(['1', '9']);
    await bench.end(bytes(5));
    expect(bench.pulls.map(({ handle }) => handle)).to.deep.equal(['9', '2']);
    bench.pulls.reverse();
    await bench.end(new Error('gone'));
    await bench.end(bytes(9));
    await bench.end(bytes(3));
    expect(bench.log).to.deep.equal(['1 5', '2 gone', '9 9', '3 3']);
    expect(ends).to.equal(3);
  });

  it('one peer that fills its line is refused, by a text with the numbers, and takes no place of another', async () => {
    for (let i = 0; i < MAX_WAITING_PER_PEER; i++) bench.accept(a, 'full');
    expect(bench.log).to.deep.equal([]);
    bench.accept(a, 'late');
    expect(bench.log[0]).to.match(new RegExp(`^late ${MAX_WAITING_PER_PEER} .* already wait`));
    bench.accept(b, 'other');
    await settled();
    expect(bench.pulls.map(({ handle }) => handle)).to.deep.equal(['full', 'other']);
    await bench.end(bytes(1));
    bench.accept(a, 'again');
    expect(bench.log).to.have.length(2);
  });

  it('many peers together are refused above the bound for all', () => {
    const peers = MAX_WAITING_BATCHES / MAX_WAITING_PER_PEER;
    for (let n = 0; n < peers; n++) {
      const peer = peerOf(String(n));
      for (let i = 0; i < MAX_WAITING_PER_PEER; i++) bench.accept(peer, 'full');
    }
    expect(bench.log).to.deep.equal([]);
    bench.accept(b, 'late');
    expect(bench.log[0]).to.include(`${MAX_WAITING_BATCHES} in all`);
  });

  it('nothing of the message is kept but a handle of bounded length', async () => {
    bench.accept(a, '7'.repeat(10_000));
    await settled();
    expect(bench.pulls[0]!.handle).to.have.length.below(100);
  });
});
