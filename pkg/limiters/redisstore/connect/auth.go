package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/smallfile"
)

// credentials returns the username and password for a new connection. Its error fails the
// connection.
type credentials func(context.Context) (username, password string, err error)

// A Login authenticates connections. The zero Login sends no password.
type Login struct {
	Username, Password string
	credentials        credentials // if not nil, overrides Username and Password
}

// Set sets the username and password from the value of REDIS_AUTH, password or user:password. They
// override those of the URL; an empty part is ignored.
func (l *Login) Set(text string) {
	user, secret, both := strings.Cut(text, ":")
	if !both {
		user, secret = "", text
	}
	if user != "" {
		l.Username = user
	}
	if secret != "" {
		l.Password = secret
	}
}

// SetFile is [Login.Set] with the content of a file. It reads the file immediately, to report
// errors early, and again for each new connection, so that a changed password needs no restart.
func (l *Login) SetFile(path string) error {
	withUser := Login{Username: l.Username}
	c := func(context.Context) (string, string, error) {
		text, err := readAuth(path)
		if err != nil {
			return "", "", fmt.Errorf("password file: %w", err)
		}
		login := withUser
		login.Set(text)
		if login.Password == "" {
			return "", "", fmt.Errorf("password file: %s has a user and no password: want user:password", path)
		}
		return login.Username, login.Password, nil
	}
	_, _, err := c(context.Background())
	if err == nil {
		l.credentials = c
	}
	return err
}

// readAuth reads the only line of a file. Its errors never contain the content.
func readAuth(path string) (string, error) {
	data, err := smallfile.Read(path)
	if err != nil {
		return "", err
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	switch {
	case len(data) == 0:
		return "", fmt.Errorf("%s is empty: want password or user:password", path)
	case bytes.ContainsAny(data, "\r\n"):
		return "", fmt.Errorf("%s has several lines: want one, with password or user:password", path)
	}
	return string(data), nil
}

// onConnect authenticates connections to Sentinels, for which go-redis does not call c.
// It ignores connections to the master, whose name is not an address, because go-redis has
// authenticated them itself.
func (c credentials) onConnect() func(context.Context, *redis.Conn) error {
	if c == nil {
		return nil
	}
	return func(ctx context.Context, conn *redis.Conn) error {
		if strings.Contains(conn.String(), "<FailoverClient ") {
			return nil
		}
		username, password, err := c(ctx)
		if err != nil {
			return err
		}
		if username != "" {
			err = conn.AuthACL(ctx, username, password).Err()
		} else {
			err = conn.Auth(ctx, password).Err()
		}
		if err != nil {
			return errors.Join(ErrSentinelAuth, err)
		}
		return nil
	}
}

// ErrSentinelAuth is returned if a Sentinel rejects the credentials of SentinelLogin.
var ErrSentinelAuth = errors.New("a Sentinel rejected the password")
