package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Credentials returns the username and password for a new connection. If it returns an error, connecting fails with it.
type Credentials func() (username, password string, err error)

// maxAuthFile is the maximum size of a password file in bytes. The longest tokens have a few thousand.
const maxAuthFile = 64 << 10

// SetAuth sets the username and password from the value of REDIS_AUTH: password, or user:password. They replace those of
// the URL; an empty part changes nothing.
func (o *Options) SetAuth(text string) { setAuth(&o.Username, &o.Password, text) }

// SetSentinelAuth is like SetAuth, for the connections to Sentinels.
func (o *Options) SetSentinelAuth(text string) {
	setAuth(&o.SentinelUsername, &o.SentinelPassword, text)
}

func setAuth(username, password *string, text string) {
	user, secret, both := strings.Cut(text, ":")
	if !both {
		user, secret = "", text
	}
	if user != "" {
		*username = user
	}
	if secret != "" {
		*password = secret
	}
}

// SetAuthFile is like SetAuth, with a file that holds the text. The file is read at once, to report errors early, and
// again for each new connection, so a new password needs no restart.
func (o *Options) SetAuthFile(path string) error {
	c, err := credentialsFrom(path, o.Username)
	if err == nil {
		o.Credentials = c
	}
	return err
}

// SetSentinelAuthFile is like SetAuthFile, for the connections to Sentinels.
func (o *Options) SetSentinelAuthFile(path string) error {
	c, err := credentialsFrom(path, o.SentinelUsername)
	if err == nil {
		o.SentinelCredentials = c
	}
	return err
}

func credentialsFrom(path, username string) (Credentials, error) {
	c := func() (string, string, error) {
		text, err := readAuth(path)
		if err != nil {
			return "", "", fmt.Errorf("password file: %w", err)
		}
		user, password := username, ""
		setAuth(&user, &password, text)
		if password == "" {
			return "", "", fmt.Errorf("password file: %s has a user and no password: want user:password", path)
		}
		return user, password, nil
	}
	_, _, err := c()
	return c, err
}

// readAuth reads the only line of a file. Its errors never show the content.
func readAuth(path string) (string, error) {
	// Opening a pipe or a device might block.
	if info, err := os.Stat(path); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxAuthFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxAuthFile {
		return "", fmt.Errorf("%s is too large: want at most %d bytes", path, maxAuthFile)
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

// provider adapts c to go-redis.
func (c Credentials) provider() func(context.Context) (string, string, error) {
	if c == nil {
		return nil
	}
	return func(context.Context) (string, string, error) { return c() }
}

// onConnect authenticates connections to Sentinels. go-redis itself asks no provider there. It calls the hook for
// connections to the master too, which it has already authenticated; their name is not an address.
func (c Credentials) onConnect() func(context.Context, *redis.Conn) error {
	if c == nil {
		return nil
	}
	return func(ctx context.Context, conn *redis.Conn) error {
		if strings.Contains(conn.String(), "<FailoverClient ") {
			return nil
		}
		username, password, err := c()
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

// ErrSentinelAuth is the error of a connection to a Sentinel that rejected SentinelCredentials.
var ErrSentinelAuth = errors.New("a Sentinel rejected the password")
