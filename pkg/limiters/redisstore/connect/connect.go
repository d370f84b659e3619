// Package connect opens connections to Redis. It parses URLs and passwords, and creates go-redis
// clients with timeouts and retries for a rate limiter: a command is sent at most once, and its
// context bounds all waits. See [Options.Open].
package connect

import (
	"context"
	"crypto/tls"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Type is a deployment of Redis. Empty means Single.
type Type string

// The deployments of Redis.
const (
	Single   Type = "single"   // one Redis
	Sentinel Type = "sentinel" // a master and its replicas; Sentinels know the master's address
	Cluster  Type = "cluster"  // a Redis Cluster
)

// Options describes the connections to one Redis. Addr is required for Single, and Addrs for
// Sentinel and Cluster. Other zero values are defaults.
type Options struct {
	Type    Type
	Network string   // Single only: tcp (default) or unix
	Addr    string   // Single only: host:port, or the path of a unix socket
	Addrs   []string // host:port of the Sentinels, or of any nodes of the cluster
	Master  string   // Sentinel only: the master's name
	DB      int      // the database; a cluster has only 0

	Login         Login
	SentinelLogin Login // for connections to Sentinels

	// TLS encrypts all connections, including those to Sentinels. Nil disables TLS, unless
	// CurrentTLS is set.
	TLS *tls.Config
	// CurrentTLS, if set, returns the configuration for a new connection, instead of TLS, so that
	// renewed certificates take effect.
	CurrentTLS func() *tls.Config

	// Timeout bounds a call, including the wait for a connection. The default is 15 ms, because
	// Envoy's default timeout is 20 ms.
	Timeout time.Duration
	// DialTimeout bounds a connection attempt, including TLS and AUTH. The default is the longer of
	// 1 s and Timeout. An attempt continues after its call has timed out, and serves later calls.
	DialTimeout time.Duration
	// PoolSize bounds the connections to each node; default 10.
	PoolSize int
}

// WithDefaults returns o with defaults for zero values.
func (o Options) WithDefaults() Options {
	if o.Type == "" {
		o.Type = Single
	}
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Millisecond
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = max(time.Second, o.Timeout)
	}
	if o.PoolSize == 0 {
		o.PoolSize = 10
	}
	return o
}

// String returns the address, without a password, for error messages.
func (o Options) String() string {
	switch o.Type {
	case Sentinel:
		return "the master " + o.Master + " of the Sentinels " + strings.Join(o.Addrs, ",")
	case Cluster:
		return "the cluster of " + strings.Join(o.Addrs, ",")
	default:
		return o.Addr
	}
}

// idlePerNode is the number of idle connections kept for each node: one for the queue, one for
// redirected commands. After a network failure, each broken idle connection fails a call, so more
// would do harm.
const idlePerNode = 2

// requestTimeout bounds requests that go-redis makes without a deadline: AUTH, the master's
// address, the slots of a cluster. It is well below DialTimeout, so that go-redis can try another
// Sentinel within DialTimeout.
func (o Options) requestTimeout() time.Duration {
	return max(o.Timeout, min(o.DialTimeout/4, time.Second))
}

// Open returns a client without connecting. o must have its defaults, see [Options.WithDefaults].
// For a Cluster the client is a *redis.ClusterClient.
func (o Options) Open() redis.UniversalClient {
	disableLogging()
	u := o.universal()
	switch o.Type {
	case Sentinel:
		u.Addrs, u.OnConnect = o.Addrs, o.SentinelLogin.credentials.onConnect()
		return redis.NewFailoverClient(u.Failover())
	case Cluster:
		u.Addrs = o.Addrs
		options := u.Cluster()
		options.DisableRoutingPolicies = true // send a command only to the node that owns its key
		cluster := redis.NewClusterClient(options)
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(withTimeout(o.requestTimeout())) })
		return cluster
	default:
		u.Addrs = []string{o.Addr}
		options := u.Simple()
		options.Network = o.Network
		return redis.NewClient(options)
	}
}

// universal returns the options that all types share.
func (o Options) universal() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		MasterName: o.Master, DB: o.DB, Username: o.Login.Username, Password: o.Login.Password,
		SentinelUsername: o.SentinelLogin.Username, SentinelPassword: o.SentinelLogin.Password,
		CredentialsProviderContext: o.Login.credentials,
		TLSConfig:                  o.TLS,
		Dialer:                     o.dialer(),
		DialTimeout:                o.DialTimeout,
		ReadTimeout:                o.requestTimeout(),
		WriteTimeout:               o.requestTimeout(),
		PoolSize:                   o.PoolSize,
		PoolTimeout:                o.Timeout,
		MaxIdleConns:               min(idlePerNode, o.PoolSize),
		// A command may have charged hits, so it is never sent twice. MaxRedirects still follows
		// MOVED and ASK.
		MaxRetries:    -1,
		DialerRetries: 1,
		MaxRedirects:  3,
		// The context of a command bounds the wait for a connection, the write and the read.
		ContextTimeoutEnabled: true,
		// A pipeline must count towards PoolSize.
		PipelinePoolSize: -1,
		// Weir needs nothing of RESP3, and an ACL may forbid CLIENT SETINFO.
		Protocol:        2,
		DisableIdentity: true,
	}
}

// withTimeout is a hook that bounds commands without a deadline. Without it, go-redis' request for
// the slots of a cluster would wait for an unreachable node for the whole dial timeout before it
// tries the next one.
type withTimeout time.Duration

func (withTimeout) DialHook(next redis.DialHook) redis.DialHook { return next }

func (withTimeout) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (timeout withTimeout) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if _, has := ctx.Deadline(); has {
			return next(ctx, cmd)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Duration(timeout))
		defer cancel()
		return next(ctx, cmd)
	}
}

// disableLogging stops go-redis from logging errors that it also returns.
var disableLogging = sync.OnceFunc(func() { redis.SetLogger(discard{}) })

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}
