"""The model of fences: frees that wait for their device."""

from script import ALL, ANY, E_UNKNOWN, OK


class Fence:
    def __init__(self, number, queue):
        self.number, self.queue, self.block = number, queue, None


class Fences:
    def fences_begin(self):
        self.fence_state = {}  # by the script's number: 0 not yet, 1 done, -1 failed
        self.queues = {}       # by device and queue: the fences not done, in the order of the frees

    def op_fence_set(self, number, state):
        self.fence_state[number] = state
        return OK

    def pend(self, block, site, fence=None, queue=0):
        """Lets a block wait: it is dead to all calls, and still counted."""
        block.pending, block.uses = block.uses, []
        if fence is not None:
            block.pending.append(Fence(fence, queue))
        for one in block.pending:
            one.block = block
            self.queues.setdefault((block.device, one.queue), []).append(one)
        block.epoch = self.epoch
        block.device.pending += block.bytes
        self.event("pend", block.device, block.storage, block.bytes,
                   self.site_row(site, block.device), block.tag, block.stream)

    def drop_fences(self, block):
        for one in block.pending or []:
            self.queues[block.device, one.queue].remove(one)
        block.pending, block.uses = None, []

    def op_free_deferred(self, device, storage, site, fence, queue):
        if not storage:
            return OK
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return self.unknown_free(device, storage)
        if block.refs > 1:
            self.shared_free(block)
        self.pend(block, site, fence, queue)
        self.freed_at(site, block.device, block.bytes)
        self.retire(block.device.subject._replace(index=ANY))
        return OK

    def op_block_use(self, device, storage, fence, queue):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return E_UNKNOWN
        block.uses = [f for f in block.uses if f.queue != queue] + [Fence(fence, queue)]
        return OK

    def op_free_done(self, device, storage):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is None:
            return E_UNKNOWN
        self.credit(block)
        return OK

    def credit(self, block):
        del self.blocks[block.device.type, block.storage]
        self.stack_end(block, True)
        self.closed(block)
        self.event("free", block.device, block.storage, block.bytes, None, block.tag,
                   block.stream)
        self.drop_fences(block)

    def retire(self, selector=ALL):
        """Credits the pending blocks whose fences are done. Fences of one queue are done in the
        order of the frees. Returns the bytes."""
        credited = 0
        for (device, _), fences in list(self.queues.items()):
            if not self.selects(selector, device):
                continue
            while fences and self.fence_state.get(fences[0].number, 0):
                fence = fences.pop(0)
                fence.block.pending.remove(fence)
                if self.fence_state[fence.number] < 0:
                    device.count["fence_failures"] += 1
                    self.mistake("fence_failed", device.subject, fence.block.storage,
                                 fence.block.bytes, fence.block, given=False)
                if not fence.block.pending:
                    credited += fence.block.bytes
                    self.credit(fence.block)
        return credited

    def op_retire(self, selector):
        return self.retire(selector)
