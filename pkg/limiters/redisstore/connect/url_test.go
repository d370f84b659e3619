package connect

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseTypeIgnoresCase(t *testing.T) {
	for text, want := range map[string]Type{
		"": Single, "SINGLE": Single, "single": Single, "Sentinel": Sentinel, "CLUSTER": Cluster, "ring": "",
	} {
		if got, err := ParseType(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	_, err := ParseType("ring")
	if err == nil || !strings.Contains(err.Error(), `"ring": want single, sentinel or cluster`) {
		t.Errorf("%v: want the type that is unknown, and those that are known", err)
	}
}

func TestURLsOfRatelimitAreParsed(t *testing.T) {
	for _, c := range []struct {
		kind          Type
		network, text string
		want          Options
		err           string
		tls           bool
	}{
		{"", "tcp", "localhost:6379", Options{Type: Single, Network: "tcp", Addr: "localhost:6379"}, "", false},
		{"", "tcp", "redis_cache", Options{Type: Single, Network: "tcp", Addr: "redis_cache:6379"}, "", false},
		{"", "tcp", ":6380", Options{Type: Single, Network: "tcp", Addr: "localhost:6380"}, "", false},
		{Single, "tcp", "[::1]:6379", Options{Type: Single, Network: "tcp", Addr: "[::1]:6379"}, "", false},
		{Single, "", "redis://:secret@h:1/3", Options{
			Type: Single, Network: "tcp", Addr: "h:1", Login: Login{Password: "secret"}, DB: 3,
		}, "", false},
		{Single, "tcp", "redis://me:secret@h:1", Options{
			Type: Single, Network: "tcp", Addr: "h:1", Login: Login{Username: "me", Password: "secret"},
		}, "", false},
		{Single, "tcp", "redis://me:sec%2Fret%40@h:1/", Options{
			Type: Single, Network: "tcp", Addr: "h:1", Login: Login{Username: "me", Password: "sec/ret@"},
		}, "", false},
		{Single, "tcp", "redis://h:1?db=4&username=me&password=secret", Options{
			Type: Single, Network: "tcp", Addr: "h:1", Login: Login{Username: "me", Password: "secret"}, DB: 4,
		}, "", false},
		{Single, "tcp", "redis://h:1/0", Options{Type: Single, Network: "tcp", Addr: "h:1"}, "", false},
		{Single, "tcp", "rediss://h:1", Options{Type: Single, Network: "tcp", Addr: "h:1"}, "", true},
		{"", "unix", "run/redis.sock", Options{Type: Single, Network: "unix", Addr: "run/redis.sock"}, "", false},
		{"", "tcp", "/run/redis.sock", Options{Type: Single, Network: "unix", Addr: "/run/redis.sock"}, "", false},
		{"", "tcp", "", Options{}, "empty address", false},
		{"", "unix", "", Options{}, "empty address", false},
		{"", "unix", "redis://:secret@h:1", Options{}, "set the type of socket to tcp", false},
		{"", "tcp", "redis://me:secret@h:1/x", Options{}, "database that is not a number", false},
		{"", "tcp", "redis://me:secret@h:1/-1", Options{}, "database that is not a number", false},
		{"", "tcp", "redis://me:secret@h:1?secret=1", Options{}, "unknown parameter", false},
		{"", "tcp", "redis://h:1?password=sec%secret", Options{}, "as %XX", false},
		{"", "tcp", "redis://h:1?password=secret;2", Options{}, "as %XX", false},
		{"", "tcp", "redis://me:sec/secret@h:1", Options{}, "as %XX", false},
		{"", "tcp", "redis://me:sec#secret@h:1", Options{}, "as %XX", false},
		{"", "tcp", "redis://h:1#secret", Options{}, "as %XX", false},
		{"", "tcp", "redis://me:secret@h:x", Options{}, "as %XX", false},
		{"", "tcp", "redis://me:secret@h:70000", Options{}, "port that is out of range", false},
		{"", "tcp", "me:secret://h", Options{}, "unknown scheme", false},
		{"", "tcp", "http://h:1", Options{}, "unknown scheme", false},
		{"", "tcp", "master,secret:26379,s2:26379", Options{}, "set the type to sentinel or cluster", false},

		{Sentinel, "unix", " master ,s1:26379, s2", Options{
			Type: Sentinel, Master: "master", Addrs: []string{"s1:26379", "s2:26379"},
		}, "", false},
		{Sentinel, "", "m,rediss://me:secret@s1:1,s2:2", Options{
			Type: Sentinel, Master: "m", Addrs: []string{"s1:1", "s2:2"},
			SentinelLogin: Login{Username: "me", Password: "secret"},
		}, "", true},
		{Sentinel, "", "s1:26379,s2:26379", Options{}, "name of the master should be", false},
		{Sentinel, "", "master", Options{}, "no Sentinels", false},
		{Sentinel, "", "master,", Options{}, "address 2 of the list is empty", false},
		{Sentinel, "", ",s1:26379", Options{}, "no name of a master", false},
		{Sentinel, "", "master,redis://s1:26379/1", Options{}, "no databases", false},

		{Cluster, "", "a:1", Options{Type: Cluster, Addrs: []string{"a:1"}}, "", false},
		{Cluster, "unix", "a:1,redis://me:secret@b:2, c:3", Options{
			Type: Cluster, Addrs: []string{"a:1", "b:2", "c:3"}, Login: Login{Username: "me", Password: "secret"},
		}, "", false},
		{Cluster, "", "redis://me@a:1,b:2", Options{ // REDIS_AUTH gives the password
			Type: Cluster, Addrs: []string{"a:1", "b:2"}, Login: Login{Username: "me"},
		}, "", false},
		{Cluster, "", "rediss://a:1,rediss://b:2", Options{Type: Cluster, Addrs: []string{"a:1", "b:2"}}, "", true},
		{Cluster, "", "a:1,,b:2", Options{}, "address 2 of the list is empty", false},
		{Cluster, "", "a:1,b:secret", Options{}, "address 2 of the list is not an address", false},
		{Cluster, "", "redis://a:1/2", Options{}, "only database 0", false},
		{Cluster, "", "redis://:secret@a:1,redis://:secret2@b:1", Options{}, "another user or password", false},
		{Cluster, "", "redis://me@a:1,redis://you@b:1", Options{}, "another user or password", false},
		{"ring", "", "a:1", Options{}, `unknown type "ring"`, false},
	} {
		got, err := ParseURL(c.kind, c.network, c.text)
		if (got.TLS != nil) != c.tls {
			t.Errorf("ParseURL(%q, %q, %q): TLS %v, want %v", c.kind, c.network, c.text, got.TLS != nil, c.tls)
		}
		got.TLS = nil
		if c.err == "" && (err != nil || !reflect.DeepEqual(got, c.want)) ||
			c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("ParseURL(%q, %q, %q) = %+v, %v; want %+v, %q", c.kind, c.network, c.text, got, err, c.want, c.err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseURL(%q): the error shows the password: %v", c.text, err)
		}
	}
}
