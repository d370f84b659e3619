package redisstore

// Options configure a Store. The zero value is the default configuration.
type Options struct {
	// Prefix starts every key.
	Prefix string
	// KeySecret, if not empty, hides the hits' keys and tags: Redis sees their HMAC-SHA256 under this secret. A different
	// secret makes different keys.
	KeySecret string
	// Tag returns the part of a hit's key that decides its slot in a cluster. If Tag is nil or returns "", the whole key
	// decides. The keys of one group must have the same tag. A different tag makes a different key, on any type of Redis.
	Tag func(key string) string

	// MaxBatch is the maximum number of hits in one call, unless a single Take has more: Take never splits hits that one
	// call can carry. Each hit occupies Redis for 1 to 2 µs. The default is 256.
	MaxBatch int
	// MaxWaiting is the maximum number of hits that wait for the call to one node. A Take beyond it fails with ErrQueueFull,
	// unless no other hit waits. The default is 16,384.
	MaxWaiting int
}

func (o Options) withDefaults() Options {
	if o.MaxBatch == 0 {
		o.MaxBatch = 256
	}
	o.MaxBatch = min(o.MaxBatch, maxBatchHits)
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 16_384
	}
	return o
}
