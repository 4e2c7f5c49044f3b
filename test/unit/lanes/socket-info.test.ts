import { networkInterfaces } from 'node:os';
import { expect } from 'chai';
import type { FrameSource } from '../../../lib/lanes/frame-intake.js';
import { HelloSockets, MAX_WAITING_HELLOS } from '../../../lib/lanes/hello-sockets.js';
import { HostMatcher, plainAddress } from '../../../lib/lanes/socket-info.js';
import { Suspicion } from '../../../lib/lanes/suspicion.js';

const ELSEWHERE = '192.0.2.1';

describe('addresses of sockets', () => {
  it('one address has one spelling', () => {
    for (const [given, plain] of [
      ['127.0.0.1', '127.0.0.1'],
      ['::ffff:10.0.0.5', '10.0.0.5'],
      ['::FFFF:10.0.0.5', '10.0.0.5'],
      ['0:0:0:0:0:0:0:1', '::1'],
      ['FE80::1%eth0', 'fe80::1'],
      ['2001:DB8::0:1', '2001:db8::1'],
      ['frontend.example', undefined],
      ['', undefined],
      [undefined, undefined],
    ])
      expect(plainAddress(given), `${given}`).to.equal(plain);
  });

  it('an address is a peer’s when it is one of its hosts, or when both are this host', () => {
    const matcher = new HostMatcher(() => 0);
    const nics = Object.values(networkInterfaces()).flatMap((entries) => entries ?? []);
    expect(matcher.mayBe([ELSEWHERE, '10.0.0.5'], '10.0.0.5')).to.equal(true);
    expect(matcher.mayBe([ELSEWHERE], '192.0.2.2')).to.equal(false);
    expect(matcher.mayBe([ELSEWHERE], '127.0.0.1'), 'a local process in the name of another host').to.equal(false);
    expect(matcher.mayBe(['127.0.0.1'], ELSEWHERE)).to.equal(false);
    expect(matcher.mayBe(['127.0.0.1'], '127.0.0.9')).to.equal(true);
    for (const { address } of nics) expect(matcher.mayBe(['::1'], plainAddress(address)), address).to.equal(true);
  });

  it('nothing is said where nothing is known: no address, no hosts, a host that is a name', () => {
    const matcher = new HostMatcher(() => 0);
    expect(matcher.mayBe([ELSEWHERE], undefined)).to.equal(true);
    expect(matcher.mayBe([], ELSEWHERE)).to.equal(true);
    expect(matcher.mayBe(['frontend.example'], ELSEWHERE)).to.equal(true);
  });

  it('each message in a name that cannot be is counted, until the peer’s hosts change', () => {
    const counts = { spoofSuspected: 0 };
    const suspicion = new Suspicion(counts);
    const source = { remote: 'x', ends: { remoteAddress: '192.0.2.7' } } as unknown as FrameSource;
    const peer = { label: 'a', hosts: [ELSEWHERE] };
    suspicion.note(peer, source);
    suspicion.note(peer, source);
    expect(counts.spoofSuspected).to.equal(2);
    suspicion.note({ label: 'b', hosts: ['192.0.2.7'] }, source);
    expect(counts.spoofSuspected).to.equal(2);
    peer.hosts = [ELSEWHERE, '192.0.2.7'];
    suspicion.note(peer, source);
    expect(counts.spoofSuspected).to.equal(2);
  });
});

describe('sockets that wait for the answer of a hello', () => {
  it('are answered once, and forgotten by an answer without bytes', () => {
    const sockets = new HelloSockets();
    const written: number[] = [];
    const source = (n: number) => ({ writeBack: () => written.push(n) }) as unknown as FrameSource;
    const [first, second] = [sockets.hold(source(1)), sockets.hold(source(2))];
    sockets.answer(second, Uint8Array.of(1));
    sockets.answer(second, Uint8Array.of(1));
    sockets.answer(first, new Uint8Array(0));
    sockets.answer(first, Uint8Array.of(1));
    expect(written).to.deep.equal([2]);
  });

  it('are not found by an answer to a hello that a dead lane of that number took', () => {
    const written: string[] = [];
    const source = (name: string) => ({ writeBack: () => written.push(name) }) as unknown as FrameSource;
    const lives = [0, 1, 255].map((life) => new HelloSockets(life));
    const tokens = lives.map((sockets, life) => sockets.hold(source(`life ${life}`)));
    for (const token of tokens.slice(0, 2)) lives[2]!.answer(token, Uint8Array.of(1));
    expect(written).to.deep.equal([]);
    lives[2]!.answer(tokens[2]!, Uint8Array.of(1));
    expect([written, tokens[2]! < 2 ** 32]).to.deep.equal([['life 2'], true]);
  });

  it('have a bound: the oldest loses its way back', () => {
    const sockets = new HelloSockets();
    const written: number[] = [];
    const tokens: number[] = [];
    for (let n = 0; n <= MAX_WAITING_HELLOS; n += 1)
      tokens.push(sockets.hold({ writeBack: () => written.push(n) } as unknown as FrameSource));
    for (const token of tokens) sockets.answer(token, Uint8Array.of(1));
    expect(written[0]).to.equal(1);
    expect(written).to.have.length(MAX_WAITING_HELLOS);
  });
});

describe('the hosts of a peer', () => {
  it('are not parsed again for each message of a connection that carries many names', () => {
    const real = globalThis.URL;
    let parsed = 0;
    globalThis.URL = class extends real {
      constructor(url: string) {
        super(url);
        parsed += 1;
      }
    } as typeof URL;
    try {
      const matcher = new HostMatcher(() => 0);
      const hosts = Array.from({ length: 64 }, (_, i) => `2001:db8::${(i + 1).toString(16)}`);
      matcher.mayBe(hosts, '192.0.2.1');
      parsed = 0;
      for (let i = 0; i < 10; i++) expect(matcher.mayBe(hosts, '192.0.2.1')).to.equal(false);
    } finally {
      globalThis.URL = real;
    }
    expect(parsed).to.equal(0);
  });
});
