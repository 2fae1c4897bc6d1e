"""A bare design in Lua, as a worked example of the interface and as a ceiling.

One process, one thread, no retries or scheduler loop of its own: it only shows
how far the transport lets a queue go.  HASH row + ZSET of pending + ZSET of leases.
"""

import time

from marks import mark

from .base import HOST, PAD, PORT, Adapter

ENQ = """
if redis.call('EXISTS', KEYS[1]..ARGV[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1]..ARGV[1], 's', 'p', 'n', 0, 'd', ARGV[2])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('RPUSH', KEYS[3], 1) redis.call('LTRIM', KEYS[3], -1, -1)
return 1
"""
STEP = """
local n = tonumber(ARGV[1])
local k = #ARGV
if k > 2 then
  redis.call('ZREM', KEYS[3], unpack(ARGV, 3, k))
  for i = 3, k do redis.call('UNLINK', KEYS[1]..ARGV[i]) end
end
local p = redis.call('ZPOPMIN', KEYS[2], n)
local out = {}
for i = 1, #p, 2 do
  local row = KEYS[1]..p[i]
  redis.call('HINCRBY', row, 'n', 1)
  redis.call('ZADD', KEYS[3], ARGV[2], p[i])
  out[#out+1] = p[i]
  out[#out+1] = redis.call('HGET', row, 'd')
end
return out
"""
KEYS = ["{b}:r:", "{b}:pending", "{b}:active"]


class RawLua(Adapter):
    name = "rawlua"
    has_bulk = True
    configs = {"default": {"batch": 1}, "best1": {"batch": 32}, "best": {"batch": 32, "procs": 2}}

    def open(self):
        import json

        import redis

        self.json = json
        self.r = redis.Redis(host=HOST, port=PORT)
        self.enq = self.r.register_script(ENQ)
        self.sha = self.enq.sha
        self.r.script_load(ENQ)

    def enqueue(self, i):
        self.r.evalsha(self.sha, 3, KEYS[0], KEYS[1], "{b}:bell", i, self.json.dumps([i, PAD]))

    def enqueue_bulk(self, first, n):
        for a in range(first, first + n, self.bulk_chunk):
            p = self.r.pipeline(transaction=False)
            for i in range(a, min(a + self.bulk_chunk, first + n)):
                p.evalsha(self.sha, 3, KEYS[0], KEYS[1], "{b}:bell", i, self.json.dumps([i, PAD]))
            p.execute()

    def run_worker(self, batch):
        import json

        import redis

        r = redis.Redis(host=HOST, port=PORT)
        sha = r.script_load(STEP)
        done = []
        while True:
            got = r.evalsha(sha, 3, *KEYS, batch, time.time() + 30, *done)
            done = []
            if not got:
                r.blpop("{b}:bell", 1)
                continue
            for k in range(0, len(got), 2):
                i, _pad = json.loads(got[k + 1])
                mark(i)
                done.append(got[k])


def make(name):
    return RawLua()
