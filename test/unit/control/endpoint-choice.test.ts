import { expect } from 'chai';
import { chooseEndpoint } from '../../../lib/control/endpoint-choice.js';
import type { TcpEndpoint } from '../../../lib/wire/address.js';

function at(host: string, prefixLength = 24, numaNode: number | null = null, port = 5555): TcpEndpoint {
  return { name: '', host, port, prefixLength, numaNode };
}

const LOOPBACK = at('127.0.0.1', 8);
const OURS = [at('10.1.2.3', 16), at('fd00::1', 64)];

function chosen(remote: TcpEndpoint[], local = OURS, numaNode?: number): string | undefined {
  return chooseEndpoint(remote, local, numaNode)?.host;
}

describe('control/endpoint-choice', () => {
  it('prefers an endpoint in a subnet with us', () => {
    expect(chosen([at('192.168.1.1'), at('10.1.9.9', 16)])).to.equal('10.1.9.9');
    expect(chosen([at('192.168.1.1'), at('fd00::9', 64)])).to.equal('fd00::9');
  });

  it('compares under the shorter of the two prefixes', () => {
    expect(chosen([at('192.168.1.1'), at('10.1.9.9', 32)]), 'ours is shorter').to.equal('10.1.9.9');
    expect(chosen([at('192.168.1.1'), at('10.200.9.9', 8)]), 'theirs is shorter').to.equal('10.200.9.9');
    expect(chosen([at('192.168.1.1'), at('10.200.9.9', 16)])).to.equal('192.168.1.1');
    expect(chosen([at('192.168.1.1'), at('203.0.113.5', 0)]), 'a prefix of 0 holds everything').to.equal('203.0.113.5');
    expect(chosen([at('192.168.1.1'), at('10.1.9.9', 255)]), 'a prefix that is too long').to.equal('10.1.9.9');
  });

  it('never matches addresses of two families', () => {
    expect(chosen([at('192.168.1.1'), at('::ffff:10.1.9.9', 0)], [at('10.1.2.3', 16)])).to.equal('192.168.1.1');
    expect(chosen([at('192.168.1.1'), at('10.0.0.1', 0)], [at('fd00::1', 0)])).to.equal('192.168.1.1');
  });

  it('takes loopback only where it is near, or all there is', () => {
    expect(chosen([LOOPBACK, at('192.168.1.1')])).to.equal('192.168.1.1');
    expect(chosen([at('localhost'), at('::1', 128), at('192.168.1.1')])).to.equal('192.168.1.1');
    expect(chosen([at('192.168.1.1'), LOOPBACK], [at('127.0.0.1', 32)])).to.equal('127.0.0.1');
    expect(chosen([LOOPBACK])).to.equal('127.0.0.1');
    expect(chosen([at('::1', 128), LOOPBACK])).to.equal('::1');
  });

  it('a NUMA hint comes first: in a subnet with us on that node, then on that node', () => {
    const remote = [at('10.1.0.1', 16, 0), at('192.168.1.1', 24, 1), at('10.1.0.2', 16, 1)];
    expect(chosen(remote, OURS, 1)).to.equal('10.1.0.2');
    expect(chosen(remote.slice(0, 2), OURS, 1)).to.equal('192.168.1.1');
    expect(chosen(remote, OURS, 2), 'no endpoint there').to.equal('10.1.0.1');
    expect(chosen(remote, OURS), 'no hint').to.equal('10.1.0.1');
  });

  it('skips what nobody can dial, and gives a host name as it stands', () => {
    expect(chosen([at('', 24), at('10.1.9.9', 16, null, 0), at('192.168.1.1')])).to.equal('192.168.1.1');
    expect(chosen([at('', 24)])).to.equal(undefined);
    expect(chosen([])).to.equal(undefined);
    expect(chosen([at('engine-3.example', 32)])).to.equal('engine-3.example');
    expect(chosen([at('fe80::1%eth0', 64), at('192.168.1.1')], [at('fe80::2', 64)])).to.equal('fe80::1%eth0');
  });

  it('looks at the first 64 and no further', () => {
    const far = Array.from({ length: 64 }, (_, i) => at(`192.168.7.${i}`));
    expect(chosen([...far.slice(1), at('10.1.9.9', 16)])).to.equal('10.1.9.9');
    expect(chosen([...far, at('10.1.9.9', 16)])).to.equal('192.168.7.0');
  });
});
