package redisstore

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Type is how many Redis there are, and who says which of them to ask.
type Type string

// The types. An empty one is Single.
const (
	Single   Type = "single"   // one Redis
	Sentinel Type = "sentinel" // a master and its replicas; Sentinels know which is the master
	Cluster  Type = "cluster"  // a Redis Cluster
)

// Options say where Redis is. Addr is required, or Addrs for a Sentinel and a Cluster; a zero elsewhere stands for the
// default.
type Options struct {
	Type     Type
	Network  string   // of a single Redis: tcp (the default) or unix
	Addr     string   // of a single Redis: host:port, or the path of a socket
	Addrs    []string // host:port of the Sentinels, or of any nodes of the cluster
	Master   string   // the name by which the Sentinels know the master
	Username string
	Password string
	DB       int // not of a cluster

	SentinelUsername string // who Weir is to the Sentinels
	SentinelPassword string

	// Credentials and SentinelCredentials, where they are not nil, go before the names and passwords above. SetAuthFile
	// makes one.
	Credentials, SentinelCredentials Credentials

	// TLS is for every connection, to Sentinels too; nil is for none. TLSFiles makes one.
	TLS *tls.Config

	Prefix string // before every key
	// KeySecret hides what hits' keys and tags say: their HMAC-SHA256 under it stands in Redis. An empty one shows them.
	// Under another secret every key is another.
	KeySecret string
	// Tag tells which part of a hit's key decides its slot in a cluster; nil, or an empty answer, is for all of the key.
	// A group that is charged over several keys needs one that is the same for all of these. A key with another tag is
	// another key in Redis, of any type.
	Tag func(key string) string

	Timeout time.Duration // of a call, connecting included; default 15 ms, below the 20 ms that Envoy waits by default
	// DialTimeout is of an attempt to connect, default 1 s. A call waits no longer than Timeout for it, but what it has
	// begun goes on and serves those after it: a connection over TLS and far away takes longer than a call may.
	DialTimeout time.Duration
	PoolSize    int // connections to each node; default 10

	// MaxBatch is how many hits of several Takes may be in one call, which holds Redis for a microsecond or two for each;
	// default 256. The hits of one Take are never parted.
	MaxBatch int
	// MaxWaiting is how many hits may wait for the call under way, for each node; default 16,384. Those past it fail with
	// ErrBusy, but for a Take that would wait alone.
	MaxWaiting int
}

// quiet keeps go-redis from logging by itself what it also returns.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (o Options) withDefaults() Options {
	if o.Type == "" {
		o.Type = Single
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Millisecond
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = max(time.Second, o.Timeout)
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 256
	}
	o.MaxBatch = min(o.MaxBatch, mostHits)
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 16_384
	}
	if o.PoolSize == 0 {
		o.PoolSize = 10
	}
	return o
}

// What the clients of the three types have in common:
//   - MaxRetries -1, and DialerRetries 1: at most once. See command.NoRetry too.
//   - ContextTimeoutEnabled: the context of a call bounds all of it: waiting for a connection, writing and reading.
//   - Protocol 2, DisableIdentity: Weir uses nothing of RESP3, and asks nothing of a server that an ACL might deny.
//   - PipelinePoolSize -1: a pipeline takes one of the PoolSize connections and none beside them.
//   - MaxIdleConns: a lane makes one call at a time. What was connected beside that, while a network was cut, does not wait
//     for a failover to fail one call each.
//   - ReadTimeout, WriteTimeout: see asking.
//   - Dialer: see dialer.

// idle is how many connections to a node are kept: one for its lane, and one for those of others that are sent on to it.
const idle = 2

// asking is how long Redis has for what is asked of it apart from calls, which are bounded by their own context: who this
// is on a new connection, where the master is, which slots are where. It is well below DialTimeout, within which go-redis
// goes on to the next Sentinel when one does not answer, and not at all at its end.
func (o Options) asking() time.Duration { return max(o.Timeout, min(o.DialTimeout/4, time.Second)) }

func (o Options) single() *redis.Options {
	return &redis.Options{
		Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLS,
		CredentialsProviderContext: o.Credentials.provider(),
		Dialer:                     o.dialer(),
		MaxRetries:                 -1,
		DialerRetries:              1,
		PoolSize:                   o.PoolSize,
		MaxIdleConns:               min(idle, o.PoolSize),
		PipelinePoolSize:           -1,
		ContextTimeoutEnabled:      true,
		DialTimeout:                o.DialTimeout,
		ReadTimeout:                o.asking(),
		WriteTimeout:               o.asking(),
		PoolTimeout:                o.Timeout,
		Protocol:                   2,
		DisableIdentity:            true,
	}
}

func (o Options) sentinel() *redis.FailoverOptions {
	return &redis.FailoverOptions{
		MasterName: o.Master, SentinelAddrs: o.Addrs,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		Username: o.Username, Password: o.Password, DB: o.DB, TLSConfig: o.TLS,
		CredentialsProviderContext: o.Credentials.provider(), OnConnect: o.SentinelCredentials.toSentinels(),
		Dialer:                o.dialer(),
		MaxRetries:            -1,
		DialerRetries:         1,
		PoolSize:              o.PoolSize,
		MaxIdleConns:          min(idle, o.PoolSize),
		PipelinePoolSize:      -1,
		ContextTimeoutEnabled: true,
		DialTimeout:           o.DialTimeout,
		ReadTimeout:           o.asking(),
		WriteTimeout:          o.asking(),
		PoolTimeout:           o.Timeout,
		Protocol:              2,
		DisableIdentity:       true,
	}
}

// MaxRedirects is for MOVED and ASK alone, as the commands say NoRetry; without its routing policies a command goes where
// its key is.
func (o Options) cluster() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: o.Addrs, Username: o.Username, Password: o.Password, TLSConfig: o.TLS,
		CredentialsProviderContext: o.Credentials.provider(),
		Dialer:                     o.dialer(),
		MaxRedirects:               3,
		MaxRetries:                 -1,
		DialerRetries:              1,
		PoolSize:                   o.PoolSize,
		MaxIdleConns:               min(idle, o.PoolSize),
		PipelinePoolSize:           -1,
		ContextTimeoutEnabled:      true,
		DialTimeout:                o.DialTimeout,
		ReadTimeout:                o.asking(),
		WriteTimeout:               o.asking(),
		PoolTimeout:                o.Timeout,
		Protocol:                   2,
		DisableIdentity:            true,
		DisableRoutingPolicies:     true,
	}
}
