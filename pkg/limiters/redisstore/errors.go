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
	// ErrTooManyOps is returned by a Take with more operations than one call can carry.
	ErrTooManyOps = limiters.Uncharged(fmt.Errorf("one request has more than %d operations: use fewer descriptors or limits", maxBatchOps))
	// ErrClosed is returned by a Take after Close.
	ErrClosed = limiters.Uncharged(errors.New("redisstore: the store is closed"))
	// ErrAuth reports that Redis or a Sentinel rejected the password.
	ErrAuth = errors.New("the password was rejected")
	// ErrGroupSpansHashSlots is the error of a group whose keys are in several hash slots of a
	// cluster, which no script can charge atomically. Nothing was charged. Options.Tag can put keys
	// into one hash slot.
	ErrGroupSpansHashSlots = limiters.Uncharged(errors.New("redisstore: limits that are charged together have keys in several hash slots of the cluster: " +
		"set Options.Tag"))
)

// A KeyError is the error of operations on a key that Redis could not decide, for example because
// the key has another type. Its text omits the key, which contains data of users.
type KeyError struct {
	Key   string // the name of the key in Redis
	Reply string // the reply of Redis or of the script
}

func (e *KeyError) Error() string { return "redisstore: cannot decide the key: " + e.Reply }

// StoreKey returns the Redis key, for operators.
func (e *KeyError) StoreKey() string { return e.Key }

// explainError makes an error of Redis readable. Rejected passwords wrap ErrAuth. An empty reply
// comes only from a Sentinel. For an unknown command, Redis may quote its arguments, such as
// passwords and keys, which explainError removes.
func explainError(err error) error {
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf("the Sentinels know no master of that name: %w", err)
	}
	if text, _, cut := strings.Cut(err.Error(), ", with args beginning with"); cut {
		return &explainedError{text, err, nil}
	}
	if isAuth(err) && !errors.Is(err, ErrAuth) {
		return &explainedError{ErrAuth.Error() + ": " + err.Error(), err, ErrAuth}
	}
	return err
}

// isAuth reports whether err means that the password is missing or was rejected.
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

// An explainedError is err, an error of Redis, with another text. It is kind too, if that is not
// nil. It does not wrap kind, because it must stay [limiters.Uncharged] if err is.
type explainedError struct {
	text      string
	err, kind error
}

func (e *explainedError) Error() string        { return e.text }
func (e *explainedError) Unwrap() error        { return e.err }
func (e *explainedError) Is(target error) bool { return target == e.kind } //nolint:errorlint // as errors.Is asks
