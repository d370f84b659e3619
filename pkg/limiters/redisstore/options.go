package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options say where Redis is. Addr is required; a zero elsewhere stands for the default.
type Options struct {
	Network  string // tcp (the default) or unix
	Addr     string // host:port, or the path of a socket
	Username string
	Password string
	DB       int
	Prefix   string        // before every key
	Timeout  time.Duration // of a call, connecting included; default 15 ms, below the 20 ms that Envoy waits by default
	PoolSize int           // connections; default 10
}

// ParseURL reads an address as envoyproxy/ratelimit takes it: host:port, redis://user:password@host:port/db, or the path
// of a unix socket where the network is unix or the path begins with a slash. Errors do not show a password.
func ParseURL(network, text string) (Options, error) {
	switch {
	case text == "":
		return Options{}, fmt.Errorf("an empty address: want host:port, redis://host:port/db or the path of a socket")
	case network == "unix" || strings.HasPrefix(text, "/"):
		return Options{Network: "unix", Addr: text}, nil
	case strings.Contains(text, ","):
		return Options{}, fmt.Errorf("several addresses: Sentinel and Cluster are not supported yet: want one address")
	case strings.Contains(text, "?"):
		return Options{}, fmt.Errorf("an address has no parameters: want redis://user:password@host:port/db")
	case strings.HasPrefix(text, "rediss://"):
		return Options{}, fmt.Errorf("rediss:// is not supported yet: want redis:// or host:port")
	case !strings.HasPrefix(text, "redis://"):
		text = "redis://" + text
	}
	o, err := redis.ParseURL(text)
	if err != nil {
		return Options{}, fmt.Errorf("not the address of a redis: want host:port, redis://user:password@host:port/db " +
			"or the path of a socket")
	}
	return Options{Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB}, nil
}

// quiet keeps go-redis from logging by itself what it also returns.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 15 * time.Millisecond
	}
	if o.PoolSize == 0 {
		o.PoolSize = 10
	}
	return o
}

func (o Options) client() *redis.Options {
	return &redis.Options{
		Network: o.Network, Addr: o.Addr, Username: o.Username, Password: o.Password, DB: o.DB,
		// At most once: see command.NoRetry too.
		MaxRetries:    -1,
		DialerRetries: 1,
		PoolSize:      o.PoolSize,
		// The context of a call bounds all of it: waiting for a connection, dialing, writing and reading.
		ContextTimeoutEnabled: true,
		DialTimeout:           o.Timeout,
		ReadTimeout:           o.Timeout,
		WriteTimeout:          o.Timeout,
		PoolTimeout:           o.Timeout,
		// Weir uses nothing of RESP3, and asks nothing of a server that an ACL might deny.
		Protocol:        2,
		DisableIdentity: true,
	}
}
