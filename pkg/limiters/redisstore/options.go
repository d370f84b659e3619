package redisstore

import "time"

// Options configures a Store. Zero fields have defaults.
type Options struct {
	// KeyPrefix is the prefix of all keys.
	KeyPrefix string
	// KeySecret, if not empty, replaces keys and tags by their HMAC-SHA256. Counters do not survive
	// a change of the secret.
	KeySecret string
	// Tag returns the part of an operation's key that selects the hash slot in a cluster. If nil or
	// "", the whole key does. The keys of a group must have the same tag. Counters do not survive a
	// change of the tag, even without a cluster.
	Tag func(key string) string

	// MaxBatch bounds the operations in a call of several Takes. A Take with more operations gets a
	// call of its own, and is never split. Each operation occupies Redis for 1 to 2 µs. The default
	// is 256.
	MaxBatch int
	// MaxWaiting bounds the operations that wait for a call to one node, including those whose Take
	// was canceled during the call under way. Beyond it, Take fails with ErrQueueFull, unless no
	// other operation waits. The default is 16,384.
	MaxWaiting int

	// Now replaces the clock of Redis in decisions, for tests. Its times must be after 1970, and
	// are truncated to microseconds. The zero time stands for that of Redis, and is the default.
	// While a hash slot moves, the clock must not stand still.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.MaxBatch == 0 {
		o.MaxBatch = 256
	}
	o.MaxBatch = min(o.MaxBatch, maxBatchOps)
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 16_384
	}
	if o.Now == nil {
		o.Now = func() time.Time { return time.Time{} }
	}
	return o
}
