import { expect } from 'chai';
import { VeloError } from '../../../lib/errors.js';
import type { HandlerOutcome } from '../../../lib/messenger/dispatch-plan.js';
import {
  amHandler,
  type HandlerContext,
  type HandlerOptions,
  handlerContext,
  type MessageHandler,
  runHandler,
  typedUnary,
  unaryHandler,
} from '../../../lib/messenger/handlers.js';
import { RESPONSE_ACK, RESPONSE_NONE, RESPONSE_UNARY } from '../../../lib/wire/envelope.js';

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const text = (outcome: HandlerOutcome): string | undefined =>
  outcome.kind === 'ok' && outcome.bytes !== undefined ? new TextDecoder().decode(outcome.bytes) : undefined;
const context = handlerContext('do', { workerHi: 0xffffffff, workerLo: 0xfffffffe, slot: 3, generation: 2 }, undefined);

function run(handler: MessageHandler, payload: Uint8Array, responseType = RESPONSE_UNARY): Promise<HandlerOutcome> {
  return runHandler(handler, responseType, payload, context);
}

describe('handlers', () => {
  it('the context names handler, sender and message, with 64 and 128 bits kept', async () => {
    let seen: HandlerContext | undefined;
    const handler = amHandler((_payload, given) => {
      seen = given;
    });
    await run(handler, new Uint8Array(0));
    expect(seen?.handler).to.equal('do');
    expect(seen?.senderWorkerId).to.equal(0xfffffffffffffffen);
    expect(seen?.messageId).to.equal((2n << 80n) | (3n << 64n) | 0xfffffffffffffffen);
    expect(seen?.headers.size).to.equal(0);
    expect(seen?.senderInstanceId).to.equal(undefined);
  });

  it('a unary handler gives bytes or nothing, at once or later', async () => {
    const echo = unaryHandler((payload) => payload);
    expect(text(await run(echo, utf8('hi')))).to.equal('hi');
    expect(
      text(
        await run(
          unaryHandler(async (payload) => payload),
          utf8('hi'),
        ),
      ),
    ).to.equal('hi');
    for (const nothing of [unaryHandler(() => {}), unaryHandler(async () => undefined)]) {
      expect(await run(nothing, utf8('hi'))).to.deep.equal({ kind: 'ok', bytes: undefined });
    }
    const wrong = unaryHandler((() => 'text') as unknown as (payload: Uint8Array) => Uint8Array);
    expect(await run(wrong, utf8('hi'))).to.deep.equal({
      kind: 'failed',
      text: "unary handler 'do' returned neither bytes nor nothing",
    });
  });

  it('a result is dropped for callers that get none', async () => {
    const echo = unaryHandler((payload) => payload);
    for (const kind of [RESPONSE_NONE, RESPONSE_ACK]) {
      expect(await run(echo, utf8('hi'), kind)).to.deep.equal({ kind: 'ok', bytes: undefined });
    }
    expect(
      await run(
        amHandler(() => utf8('ignored')),
        utf8(''),
      ),
    ).to.deep.equal({ kind: 'ok', bytes: undefined });
  });

  it('a typed handler reads and writes JSON, integers beyond 2^53 included', async () => {
    const inputs: unknown[] = [];
    const handler = typedUnary<{ id: bigint }, unknown>((input) => {
      inputs.push(input);
      return { id: input.id + 1n, twice: [input.id, 1] };
    });
    const outcome = await run(handler, utf8('{"id":18446744073709551614}'));
    expect(inputs).to.deep.equal([{ id: 18446744073709551614n }]);
    expect(text(outcome)).to.equal('{"id":18446744073709551615,"twice":[18446744073709551614,1]}');
  });

  it('a typed handler reads an empty payload as null and writes no value as null', async () => {
    const inputs: unknown[] = [];
    const handler = typedUnary((input) => {
      inputs.push(input);
    });
    expect(text(await run(handler, new Uint8Array(0)))).to.equal('null');
    expect(inputs).to.deep.equal([null]);
  });

  it('a typed handler does not run on input that is not JSON', async () => {
    let ran = false;
    const handler = typedUnary(() => {
      ran = true;
    });
    const outcome = await run(handler, utf8('{"a":'));
    expect(outcome.kind).to.equal('badInput');
    expect((await run(handler, new Uint8Array([0x22, 0xff, 0x22]))).kind).to.equal('badInput');
    expect(ran).to.equal(false);
  });

  it('a typed result that cannot be written fails only the caller that wants it', async () => {
    const loop: { self?: unknown } = {};
    loop.self = loop;
    const handler = typedUnary(() => loop);
    expect((await run(handler, utf8('1'))).kind).to.equal('badOutput');
    expect((await run(handler, utf8('1'), RESPONSE_ACK)).kind).to.equal('ok');
  });

  it('what a handler throws becomes its text, and what has no text a panic', async () => {
    const throwing = (value: unknown): MessageHandler =>
      amHandler(() => {
        throw value;
      });
    expect(await run(throwing(new Error('boom')), utf8(''))).to.deep.equal({ kind: 'failed', text: 'boom' });
    expect(await run(throwing(new TypeError('')), utf8(''))).to.deep.equal({ kind: 'failed', text: 'TypeError' });
    expect(await run(throwing('plain text'), utf8(''))).to.deep.equal({ kind: 'failed', text: 'plain text' });
    for (const value of [undefined, null, 7, {}, '']) {
      expect(await run(throwing(value), utf8(''))).to.deep.equal({ kind: 'panicked' });
    }
    expect(await run(throwing(Object.assign(new Error(), { message: 5 })), utf8(''))).to.deep.equal({
      kind: 'failed',
      text: '5',
    });
    const later = unaryHandler(async () => {
      await Promise.resolve();
      throw new Error('later');
    });
    expect(await run(later, utf8(''))).to.deep.equal({ kind: 'failed', text: 'later' });
  });

  it('what cannot even be put in words ends a run like anything else', async () => {
    const silent = Object.assign(new Error(), { message: Object.create(null) });
    const throwing = unaryHandler(() => {
      throw silent;
    });
    expect(await run(throwing, utf8(''))).to.deep.equal({ kind: 'panicked' });
    const unwritable = typedUnary(() => ({
      get field() {
        throw Object.create(null);
      },
    }));
    expect(await run(unwritable, utf8('1'))).to.deep.equal({ kind: 'badOutput', text: '' });
  });

  it('starts a handler in the call itself', () => {
    let started = false;
    void run(
      amHandler(() => {
        started = true;
      }),
      utf8(''),
    );
    expect(started).to.equal(true);
  });

  it('options say how a handler is ordered, and bad ones are refused', () => {
    const fn = (): void => {};
    expect(amHandler(fn)).to.include({ kind: 'am', order: 'none', maxConcurrent: undefined });
    expect(amHandler(fn, { maxConcurrent: 3 })).to.include({ order: 'none', maxConcurrent: 3 });
    expect(unaryHandler(fn, { ordered: true })).to.include({
      order: 'sender',
      maxQueueDepth: undefined,
      overflow: 'warn',
    });
    const global = typedUnary(fn, { orderedGlobal: true, maxQueueDepth: 8_192, overflow: 'reject', maxConcurrent: 1 });
    expect(global).to.include({ order: 'global', maxQueueDepth: 8_192, overflow: 'reject', maxConcurrent: 1 });
    const bad: HandlerOptions[] = [
      { ordered: true, orderedGlobal: true },
      { maxQueueDepth: 5 },
      { ordered: true, maxQueueDepth: 0 },
      { ordered: true, maxQueueDepth: -1 },
      { ordered: true, maxQueueDepth: 1.5 },
      { ordered: true, maxQueueDepth: 8_193 },
      { ordered: true, overflow: 'reject' },
      { ordered: true, maxQueueDepth: 1, overflow: 'drop' as 'warn' },
      { maxConcurrent: 0 },
      { ordered: true, maxConcurrent: 0 },
      { maxConcurrent: -1 },
      { maxConcurrent: 2.5 },
      { maxConcurrent: Number.POSITIVE_INFINITY },
    ];
    for (const options of bad) {
      expect(() => amHandler(fn, options), JSON.stringify(options))
        .to.throw(VeloError)
        .with.property('code', 'ERR_INVALID_ARGUMENT');
    }
    expect(() => amHandler(undefined as unknown as () => void)).to.throw(VeloError, 'must be a function');
  });
});
