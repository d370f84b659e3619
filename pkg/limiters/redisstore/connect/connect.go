// Package connect opens connections to Redis: it reads URLs and passwords, and makes a go-redis client whose
// timeouts and retries suit a limiter.
//
// The client sends a command at most once, and a context bounds everything that a command waits for. See [Options.Open].
package connect

import (
	"context"
	"crypto/tls"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Type is a deployment of Redis. The empty Type is Single.
type Type string

// The deployments of Redis.
const (
	Single   Type = "single"   // one Redis
	Sentinel Type = "sentinel" // a master and its replicas; Sentinels know the master's address
	Cluster  Type = "cluster"  // a Redis Cluster
)

// Options describe the connections to one Redis. Addr is required for Single, Addrs for Sentinel and Cluster. A zero value
// elsewhere is the default.
type Options struct {
	Type    Type
	Network string   // Single only: tcp (default) or unix
	Addr    string   // Single only: host:port, or the path of a unix socket
	Addrs   []string // host:port of the Sentinels, or of any nodes of the cluster
	Master  string   // Sentinel only: the master's name
	DB      int      // the database; a cluster has only 0

	Username, Password                 string
	SentinelUsername, SentinelPassword string // for the connections to Sentinels

	// Credentials and SentinelCredentials replace the usernames and passwords above if they are not nil.
	Credentials, SentinelCredentials Credentials

	// TLS encrypts every connection, to Sentinels too. Nil disables TLS.
	TLS *tls.Config

	// Timeout is the longest that a call may take, including the wait for a connection. The default is 15 ms, because
	// Envoy waits 20 ms by default.
	Timeout time.Duration
	// DialTimeout bounds one attempt to connect, including TLS and AUTH. The default is 1 s, or Timeout if that is longer.
	// A call gives up after Timeout, but the attempt continues and serves later calls.
	DialTimeout time.Duration
	// PoolSize is the maximum number of connections to each node. The default is 10.
	PoolSize int
}

// WithDefaults returns o with every zero value replaced by its default.
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

// String returns the address for error messages. It has no password.
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

// idle is the number of idle connections kept for each node: one for the store's queue, one for redirected commands. More
// would be a liability: after a network failure, every broken idle connection fails one call.
const idle = 2

// requestTimeout bounds the requests that go-redis makes by itself, which have no context with a deadline: AUTH on a new
// connection, the master's address, the slots of a cluster. It is well below DialTimeout, because go-redis must be able
// to try the next Sentinel within DialTimeout.
func (o Options) requestTimeout() time.Duration {
	return max(o.Timeout, min(o.DialTimeout/4, time.Second))
}

// Open makes a client. It does not connect: the first command does. For a Cluster the client is a *redis.ClusterClient.
func (o Options) Open() redis.UniversalClient {
	disableLogging()
	o = o.WithDefaults()
	u := o.universal()
	switch o.Type {
	case Sentinel:
		u.Addrs, u.OnConnect = o.Addrs, o.SentinelCredentials.onConnect()
		return redis.NewFailoverClient(u.Failover())
	case Cluster:
		u.Addrs = o.Addrs
		options := u.Cluster()
		options.DisableRoutingPolicies = true // a command goes to the node that has its key, and nowhere else
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

// universal returns what the three types have in common.
func (o Options) universal() *redis.UniversalOptions {
	return &redis.UniversalOptions{
		MasterName: o.Master, DB: o.DB, Username: o.Username, Password: o.Password,
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword,
		CredentialsProviderContext: o.Credentials.provider(),
		TLSConfig:                  o.TLS,
		Dialer:                     o.dialer(),
		DialTimeout:                o.DialTimeout,
		ReadTimeout:                o.requestTimeout(),
		WriteTimeout:               o.requestTimeout(),
		PoolSize:                   o.PoolSize,
		PoolTimeout:                o.Timeout,
		MaxIdleConns:               min(idle, o.PoolSize),
		// A command charges hits, so nothing is sent twice. MaxRedirects still follows MOVED and ASK.
		MaxRetries:    -1,
		DialerRetries: 1,
		MaxRedirects:  3,
		// The context of a command bounds everything: the wait for a connection, the write and the read.
		ContextTimeoutEnabled: true,
		// A pipeline uses one of the PoolSize connections, not an extra one.
		PipelinePoolSize: -1,
		// Weir uses nothing of RESP3, and CLIENT SETINFO might be forbidden by an ACL.
		Protocol:        2,
		DisableIdentity: true,
	}
}

// withTimeout is a hook that bounds commands without a deadline. go-redis asks for the slots of a cluster without one.
// An unreachable node would then delay the next node by the whole connect timeout.
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

// disableLogging keeps go-redis from logging errors that it also returns.
var disableLogging = sync.OnceFunc(func() { redis.SetLogger(discard{}) })

type discard struct{}

func (discard) Printf(context.Context, string, ...any) {}
