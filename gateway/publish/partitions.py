"""Maps an ordering key to its Kafka partition, as Kafka's clients do."""

from functools import lru_cache

# 64 Ki keys of 100 bytes take 10 MB. Without this cache, hashing in pure Python would double the
# cost of an event.
_KEYS_REMEMBERED = 65_536
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def partition_of(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


@lru_cache(maxsize=_KEYS_REMEMBERED)
def murmur2(data: bytes) -> int:
    """Return Austin Appleby's hash, as in org.apache.kafka.common.utils.Utils."""
    length = len(data)
    digest = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        digest = (digest * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        digest = (digest ^ int.from_bytes(rest, "little")) * _M & _MASK
    digest = (digest ^ (digest >> 13)) * _M & _MASK
    return digest ^ (digest >> 15)
