package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

var (
	// ErrTooManyHits is the error of a Take of more hits than a call can carry.
	ErrTooManyHits = limiters.Uncharged(fmt.Errorf("redisstore: more than %d hits in one Take", maxHits))
	// ErrClosed is the error of a Take after Close.
	ErrClosed = limiters.Uncharged(errors.New("redisstore: the store is closed"))
	// ErrAuth is an error of Redis, or of a Sentinel, that rejected the password.
	ErrAuth = errors.New("the password was rejected")
	// ErrGroupSpansSlots is the error of the hits of a group whose keys are in several slots of a cluster: no script can
	// charge all of them or none. The group was not charged. Options.Tag can put keys into one slot.
	ErrGroupSpansSlots = errors.New("redisstore: the keys of a group are in several slots of the cluster; " +
		"they need a common hash tag")
)

// A KeyError is the error of hits on a key that Redis could not decide, for instance because the key has another type. Its
// text does not show the key, which holds what users sent.
type KeyError struct {
	Key   string // in Redis
	Reply string // of Redis, or of the script
}

func (e *KeyError) Error() string { return "redisstore: cannot decide the key: " + e.Reply }

// StoreKey returns the key in Redis, for operators who may see it.
func (e *KeyError) StoreKey() string { return e.Key }

// readable makes an error of Redis readable. Errors that mean a rejected password wrap ErrAuth. Only Sentinels send an empty reply.
// Redis may quote the arguments of a command that it does not know: they hold passwords and keys, and are cut off.
func readable(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf("the Sentinels know no master of that name: %w", err)
	}
	if text, _, cut := strings.Cut(err.Error(), ", with args beginning with"); cut {
		return &cutError{text, err}
	}
	if isAuth(err) && !errors.Is(err, ErrAuth) {
		return fmt.Errorf("%w: %w", ErrAuth, err)
	}
	return err
}

// readableInCluster makes readable the error of a single Redis that is a cluster, or a proxy in front of one.
func readableInCluster(err error) error {
	if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "CROSSSLOT") {
		return fmt.Errorf("this Redis is a cluster: set its type to cluster: %w", err)
	}
	return err
}

// isAuth reports whether err means that Redis or a Sentinel rejected the password, or wants one.
func isAuth(err error) bool {
	if errors.Is(err, connect.ErrSentinelAuth) {
		return true
	}
	reply := replyOf(err)
	if reply == nil {
		return false
	}
	text := reply.Error()
	return strings.HasPrefix(text, "WRONGPASS ") || strings.HasPrefix(text, "NOAUTH ") || strings.HasPrefix(text, "ERR AUTH ")
}

// A cutError shows only the first part of an error's text.
type cutError struct {
	text string
	err  error
}

func (e *cutError) Error() string { return e.text }
func (e *cutError) Unwrap() error { return e.err }
