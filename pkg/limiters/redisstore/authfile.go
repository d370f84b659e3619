package redisstore

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

// A Credentials tells who Weir is. It is asked for each new connection; its error is that of the connection.
type Credentials func() (username, password string, err error)

// mostAuth is how many bytes a file with a password may have: passwords are short, and tokens have a few thousand.
const mostAuth = 64 << 10

// SetAuthFile takes who Weir is from a file, in the form that SetAuth takes: password, or user:password. The file is read
// now, so that a fault in it shows at once, and again for each new connection: what is changed in it needs no restart.
func (o *Options) SetAuthFile(path string) error {
	c, err := credentialsIn(path, o.Username)
	if err == nil {
		o.Credentials = c
	}
	return err
}

// SetSentinelAuthFile is SetAuthFile, for who Weir is to the Sentinels.
func (o *Options) SetSentinelAuthFile(path string) error {
	c, err := credentialsIn(path, o.SentinelUsername)
	if err == nil {
		o.SentinelCredentials = c
	}
	return err
}

func credentialsIn(path, username string) (Credentials, error) {
	c := func() (string, string, error) {
		text, err := readAuth(path)
		if err != nil {
			return "", "", fmt.Errorf("the file with the password: %w", err)
		}
		user, password := username, ""
		setAuth(&user, &password, text)
		if password == "" {
			return "", "", fmt.Errorf("the file with the password: %s has a user and no password", path)
		}
		return user, password, nil
	}
	_, _, err := c()
	return c, err
}

// readAuth reads the only line of a file. Its errors show nothing of it.
func readAuth(path string) (string, error) {
	// What is no file might be waited for without an end.
	if info, err := os.Stat(path); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, mostAuth+1))
	if err != nil {
		return "", err
	}
	if len(data) > mostAuth {
		return "", fmt.Errorf("%s is too large: want at most %d bytes", path, mostAuth)
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

// provider is what go-redis asks for each connection; nil where what it was given for good is right.
func (c Credentials) provider() func(context.Context) (string, string, error) {
	if c == nil {
		return nil
	}
	return func(context.Context) (string, string, error) { return c() }
}

// toSentinels logs a new connection in, if it is one to a Sentinel: there go-redis itself knows only what it was given for
// good. The master's it has logged in already; it gives them this name in the place of an address.
func (c Credentials) toSentinels() func(context.Context, *redis.Conn) error {
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
			return errors.Join(errSentinelAuth, err)
		}
		return nil
	}
}

var errSentinelAuth = errors.New("a Sentinel does not take the password")
