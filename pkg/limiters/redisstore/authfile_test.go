package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A mounted is a Secret as Kubernetes mounts it: the file is a link into a folder that is replaced
// as a whole.
type mounted struct {
	t       *testing.T
	dir     string
	version int
}

func mount(t *testing.T, text string) *mounted {
	t.Helper()
	m := &mounted{t: t, dir: t.TempDir()}
	m.rotate(text)
	must.Succeed(t, os.Symlink(filepath.Join("..data", "auth"), m.path()))
	return m
}

func (m *mounted) path() string { return filepath.Join(m.dir, "auth") }

func (m *mounted) rotate(text string) {
	m.t.Helper()
	m.version++
	name := fmt.Sprint("..", m.version)
	next := filepath.Join(m.dir, name)
	link := filepath.Join(m.dir, "..tmp")
	err := os.Mkdir(next, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(next, "auth"), []byte(text), 0o600)
	}
	if err == nil {
		err = os.Symlink(name, link)
	}
	if err == nil {
		err = os.Rename(link, filepath.Join(m.dir, "..data"))
	}
	must.Succeed(m.t, err)
}

// disconnect ends all other connections to a server.
func disconnect(t *testing.T, server *redistest.Server) {
	t.Helper()
	must.Succeed(t, server.Client(t).Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
}

// awaitAnswer charges one hit to a key as soon as the store answers, and returns the key's usage.
func awaitAnswer(t *testing.T, s *testStore, key string) int64 {
	t.Helper()
	var used int64
	redistest.Await(t, "an answer", func(context.Context) error {
		out, err := take(s, opsOf(key)...)
		if err == nil {
			err = out[0].Err
		}
		used = out[0].Used
		return err
	})
	return used
}

// While the password is rotated, open connections continue, new ones use the new password, and no
// operation fails.
func TestPasswordRotationFailsNoOp(t *testing.T) {
	server := redistest.Start(t)
	server.SetUser(t, "weir", aclRules...)
	secret := mount(t, "weir:secret\n")
	o := connect.Options{Addr: server.Addr}
	must.Succeed(t, o.Login.SetFile(secret.path()))
	s := openAt(t, o, Options{KeyPrefix: "weir:"})
	used := int64(0)
	goOn := func() {
		t.Helper()
		for range 5 {
			used++
			if out, err := take(s, opsOf("k")...); err != nil || out[0].Err != nil || out[0].Used != used {
				t.Fatalf("%+v, %v, want %d used", out, err, used)
			}
		}
	}
	goOn()
	for i := range 3 {
		next := fmt.Sprint("next", i)
		server.SetUser(t, "weir", "resetpass", ">"+next)
		goOn()
		secret.rotate("weir:" + next)
		goOn()
		disconnect(t, server)
		goOn()
	}
}

// While the file and Redis have different passwords, calls fail with ErrAuth and show neither
// password.
func TestWrongPasswordInFileIsReported(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret-of-redis")
	server.Login("", "secret-of-redis")
	secret := mount(t, "secret-of-file\r\n")
	o := connect.Options{Addr: server.Addr}
	must.Succeed(t, o.Login.SetFile(secret.path()))
	s := openAt(t, o)
	wrong := func(want string) {
		t.Helper()
		_, err := take(s, opsOf("k")...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-of") {
			t.Errorf("%v: want %q and no password", err, want)
		}
	}
	wrong("WRONGPASS")
	secret.rotate("")
	wrong(secret.path() + " is empty")
	must.Succeed(t, os.Remove(secret.path()))
	wrong(secret.path() + ": no such file")
	must.Succeed(t, os.WriteFile(secret.path(), []byte("secret-of-redis"), 0o600))
	if used := awaitAnswer(t, s, "k"); used != 1 {
		t.Errorf("%d used, want 1: no call that failed has charged", used)
	}
}

func TestPasswordFileIsReadForEachConnection(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3)
		for _, server := range c.Servers {
			server.SetUser(t, "weir", append(append([]string{}, aclRules...), clusterRules...)...)
		}
		secret := mount(t, "weir:secret")
		s := openCluster(t, c, func(c *connect.Options, o *Options) {
			o.KeyPrefix = "weir:"
			must.Succeed(t, c.Login.SetFile(secret.path()))
		})
		keys := append(append(keysOn(c, 0, 2), keysOn(c, 1, 2)...), keysOn(c, 2, 2)...)
		for used := int64(1); used <= 3; used++ {
			out, err := take(s, opsOf(keys...)...)
			for i, v := range out {
				if err != nil || v.Err != nil || v.Used != used {
					t.Fatalf("operation %d: %+v, %v, want %d used", i, v, err, used)
				}
			}
			next := fmt.Sprint("next", used)
			for _, server := range c.Servers {
				server.SetUser(t, "weir", "resetpass", ">"+next)
				disconnect(t, server)
			}
			secret.rotate("weir:" + next)
		}
	})
	t.Run("sentinels", func(t *testing.T) {
		w := redistest.StartSentinels(t, "mymaster", 3, redistest.Secrets{Redis: "of redis", Sentinel: "of sentinel"})
		rotate := func(redisUser, sentinelUser string) {
			for _, server := range append([]*redistest.Server{w.Master}, w.Sentinels...) {
				server.SetUser(t, "weir", "reset", "on", ">"+redisUser, "~*", "&*", "+@all")
				if server != w.Master {
					server.SetUser(t, "weir", "resetpass", ">"+sentinelUser)
				}
				disconnect(t, server)
			}
		}
		rotate("r1", "s1")
		redis, sentinel := mount(t, "weir:r1\n"), mount(t, "weir:s1\n")
		o := connect.Options{Type: connect.Sentinel, Master: "mymaster", Addrs: w.Addrs()}
		must.Succeed(t, o.Login.SetFile(redis.path()))
		must.Succeed(t, o.SentinelLogin.SetFile(sentinel.path()))
		s := openAt(t, o)
		if used := awaitAnswer(t, s, "k"); used != 1 {
			t.Errorf("%d used, want 1", used)
		}
		rotate("r2", "s2")
		redis.rotate("weir:r2\n")
		sentinel.rotate("weir:s2\n")
		disconnect(t, w.Master)
		if used := awaitAnswer(t, s, "k"); used != 2 {
			t.Errorf("%d used, want 2", used)
		}
		sentinel.rotate("weir:wrong")
		rotate("r2", "s2")
		_, err := take(s, opsOf("k")...)
		if !errors.Is(err, ErrAuth) || !strings.Contains(err.Error(), "WRONGPASS") || strings.Contains(err.Error(), "weir:") {
			t.Errorf("%v: want it to say WRONGPASS", err)
		}
	})
}
