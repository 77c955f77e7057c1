"""A TCP proxy of our own before a server: the network that is slow, cut, or silent, and heals.

    with Proxy(server.port) as proxy:
        proxy.port                  # what clients are told
        proxy.delay_s = 0.05        # each way
        proxy.cut()                 # connections are reset and refused
        proxy.silence()             # connections stay, and nothing comes through any more; bytes wait
        proxy.heal()

SPDX-License-Identifier: Apache-2.0
"""
import asyncio
import threading


class Pipe(asyncio.Protocol):
    """One end of a connection through the proxy; what comes in goes to the other end, after a while."""

    def __init__(self, proxy, other=None):
        self.proxy, self.other = proxy, other
        self.transport = None
        self.early = []         # what came before the other end was there
        self.held = []          # what waits for heal()
        self.due = 0.0          # bytes stay in order though the delay changes

    def connection_made(self, transport):
        self.transport = transport
        self.proxy.pipes.add(self)
        if self.other is None:
            self.proxy.loop.create_task(self._reach())

    async def _reach(self):
        try:
            _, self.other = await self.proxy.loop.create_connection(lambda: Pipe(self.proxy, self), "127.0.0.1",
                                                                    self.proxy.target)
        except OSError:
            self.transport.abort()
            return
        for data in self.early:
            self.data_received(data)

    def data_received(self, data):
        if self.other is None:
            self.early.append(data)
        elif self.proxy.is_silent:
            self.held.append(data)
        else:
            self._pass(data)

    def _pass(self, data):
        loop = self.proxy.loop
        self.due = max(self.due, loop.time() + self.proxy.delay_s)
        if self.due <= loop.time():
            self._deliver(data)
        else:
            loop.call_at(self.due, self._deliver, data)

    def _deliver(self, data):
        if self.proxy.is_silent:            # it fell silent with bytes on their way
            self.held.append(data)
        elif not self.other.transport.is_closing():
            self.other.transport.write(data)

    def release(self):
        held, self.held = self.held, []
        for data in held:
            self._deliver(data)

    def connection_lost(self, _):
        self.proxy.pipes.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()


class Proxy:
    def __init__(self, target):
        """target: the server's port"""
        self.target = target
        self.delay_s = 0.0
        self.is_silent = False
        self.pipes = set()
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self._do(self._listen)

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def _do(self, function):
        """In the loop's thread; returns when it is done."""
        asyncio.run_coroutine_threadsafe(function(), self.loop).result(timeout=10)

    async def _listen(self):
        self.listener = await self.loop.create_server(lambda: Pipe(self), "127.0.0.1", self.port)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def _cut(self):
        self.listener.close()
        for pipe in list(self.pipes):
            pipe.transport.abort()

    async def _silence(self):
        self.is_silent = True

    async def _heal(self):
        self.is_silent = False
        for pipe in list(self.pipes):
            pipe.release()
        if not self.listener.is_serving():
            await self._listen()

    def cut(self):
        self._do(self._cut)

    def silence(self):
        self._do(self._silence)

    def heal(self):
        self._do(self._heal)

    def close(self):
        self._do(self._cut)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
