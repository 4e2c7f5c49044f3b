// Who may say hello: the node's list, the application's word, and the bounds of both. It registers those that may, with the
// address their hello came from. It must never refuse by address alone: hosts have many, and NAT rewrites them.

import { performance } from 'node:perf_hooks';
import { DebugLog } from '../debug-log.js';
import { VeloError } from '../errors.js';
import { HostMatcher, plainAddress, type SocketInfo } from '../lanes/socket-info.js';
import type { PeerInfo } from '../wire/peer-info.js';
import type { Peer, PeerBook } from './peer-book.js';

/**
 * Decides about one hello. `peer` is what it says about itself: nothing proves it. Anything but `true`, a rejection, and no
 * answer within 30 s refuse.
 */
export type AcceptPeer = (peer: PeerInfo, socket: SocketInfo) => boolean | PromiseLike<boolean>;

/** Hellos that may wait for `acceptPeer` at once. */
export const MAX_PENDING_HELLOS = 1_024;
/** How long `acceptPeer` may take: whoever said hello gives up then. */
const ACCEPT_TIMEOUT_MS = 30_000;

export class HelloGate {
  /** Hellos that would move a registered peer to another host. They passed the gate like any other. */
  moves = 0;
  /** The hello of this instance was refused. */
  onRefused: (instanceId: string) => void = () => {};
  private pending = 0;
  private readonly matcher = new HostMatcher(() => performance.now());
  private readonly moveLog = new DebugLog();
  private readonly refusalLog = new DebugLog();

  constructor(
    private readonly peers: PeerBook,
    private readonly acceptPeer: AcceptPeer | undefined,
    private readonly allowPeers: ReadonlySet<string> | undefined,
  ) {}

  /**
   * Registers who said hello, at once if nobody must be asked. Throws or rejects when it may not, or cannot be registered;
   * the text of the error is for the other node.
   */
  admit(info: PeerInfo, socket: SocketInfo): Peer | Promise<Peer> {
    const route = this.peers.routeOf(info);
    const known = this.peers.worker(info.workerId);
    // Over a Unix socket it has no host.
    const host = route.host === '' ? undefined : (plainAddress(route.host) ?? route.host);
    if (known !== undefined && !this.matcher.mayBe(known.route.hosts, host)) {
      this.moves += 1;
      this.moveLog.line(() => `a hello from ${socket.remoteAddress} moves ${info.instanceId} to ${route.host}`);
    }
    if (this.allowPeers !== undefined && !this.allowPeers.has(info.instanceId)) throw this.refusal(info, socket);
    if (this.acceptPeer === undefined) return this.peers.register(info, socket.remoteAddress);
    return this.ask(this.acceptPeer, info, socket);
  }

  private async ask(acceptPeer: AcceptPeer, info: PeerInfo, socket: SocketInfo): Promise<Peer> {
    if (this.pending >= MAX_PENDING_HELLOS)
      throw new VeloError('ERR_LIMIT', `${MAX_PENDING_HELLOS} hellos already wait for this node`);
    this.pending += 1;
    let timer: NodeJS.Timeout | undefined;
    const tooLong = new Promise<false>((resolve) => {
      timer = setTimeout(() => resolve(false), ACCEPT_TIMEOUT_MS).unref();
    });
    let accepted: unknown;
    try {
      accepted = await Promise.race([acceptPeer(info, socket), tooLong]);
    } catch (cause) {
      throw this.refusal(info, socket, cause);
    } finally {
      clearTimeout(timer);
      this.pending -= 1;
    }
    if (accepted !== true) throw this.refusal(info, socket);
    return this.peers.register(info, socket.remoteAddress);
  }

  /** What the other node is told says nothing about why. */
  private refusal(info: PeerInfo, socket: SocketInfo, cause?: unknown): VeloError {
    const why = cause === undefined ? '' : `: acceptPeer failed with ${String(cause)}`;
    this.refusalLog.line(() => `refused the hello of ${info.instanceId} from ${socket.remoteAddress}${why}`);
    this.onRefused(info.instanceId);
    return new VeloError('ERR_UNKNOWN_PEER', `hello of ${info.instanceId} refused`, { cause });
  }
}
