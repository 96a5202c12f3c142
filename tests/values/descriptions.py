"""The model of what the host says of blocks: tags, marks, names, parts."""

from script import E_INVALID, E_STATE, E_UNKNOWN, OK, text


class Meta:
    def __init__(self, name, dtype, flags, shape):
        self.name, self.dtype, self.flags, self.shape = name, dtype, flags, shape


class Part:
    def __init__(self, offset, bytes, meta, tag):
        self.offset, self.bytes, self.meta, self.tag = offset, bytes, meta, tag


class Descriptions:
    """Tags, marks, and what the host says of blocks."""

    def op_describe(self, device, storage, name, dtype, tag, flags, *shape):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return E_UNKNOWN
        block.meta = Meta(text(name), text(dtype), flags, shape)
        if tag:
            self.retag(block, text(tag))
        return OK

    def op_retag(self, device, storage, tag):
        block = self.blocks.get((device.type, storage))
        if not block or block.pending is not None:
            return E_UNKNOWN
        self.retag(block, text(tag))
        return OK

    def retag(self, block, tag):
        row = self.tag_row(tag, block.device)
        if row is block.tag:
            return
        if block.tag:
            block.tag.take(block.bytes, 1)
        if row:
            row.add(block.bytes, 1)
        block.tag = row

    def op_part_add(self, device, storage, offset, bytes, name, dtype, tag, flags, *shape):
        block = self.blocks.get((device.type, storage))
        if not block:
            return E_UNKNOWN
        if not bytes or offset + bytes > block.bytes:
            return E_INVALID
        if any(p.offset < offset + bytes and offset < p.offset + p.bytes
               for p in block.parts.values()):
            return E_STATE
        block.parts[offset] = Part(offset, bytes, Meta(text(name), text(dtype), flags, shape),
                                   text(tag) or None)
        return OK

    def op_part_remove(self, device, storage, offset):
        block = self.blocks.get((device.type, storage))
        return OK if block and block.parts.pop(offset, None) else E_UNKNOWN

    def op_mark(self):
        self.mark_now += 1
        return self.mark_now

    def op_tag_begin(self, tag):
        if not tag:
            return E_INVALID
        self.thread().tags.append(text(tag))
        return OK

    def op_tag_end(self):
        t = self.thread()
        if not t.tags:
            self.misplaced_end("tag_end")
            return E_STATE
        t.tags.pop()
        return OK

    def op_tag_default(self, tag):
        self.thread().default_tag = text(tag)
        return OK

    def op_stream(self, stream):
        t = self.thread()
        before, t.stream = t.stream, stream
        return before

    def op_expect(self, device, tag, bytes):
        self.row(self.tags, text(tag), self.device(device)).expected = bytes
        return OK

    def op_label(self, device, label):
        self.device(device).label = text(label)
        return OK

    def op_labels(self, labels):
        self.labels = text(labels)
        return OK
