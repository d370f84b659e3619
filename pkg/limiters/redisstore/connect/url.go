package connect

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// ParseType parses a type, ignoring case. The empty text is Single.
func ParseType(text string) (Type, error) {
	switch t := Type(strings.ToLower(text)); t {
	case "":
		return Single, nil
	case Single, Sentinel, Cluster:
		return t, nil
	}
	return "", fmt.Errorf("unknown type %q: want %s, %s or %s", text, Single, Sentinel, Cluster)
}

// ParseURL parses the address of Redis in the forms that envoyproxy/ratelimit accepts:
//
//   - single: host:port, redis://user:password@host:port/db, or the path of a unix socket if the
//     network is unix or the path begins with a slash
//   - sentinel: the name of the master, then the Sentinels: master,host:port,host:port
//   - cluster: some of its nodes: host:port,host:port
//
// Each host:port may also be a redis:// URL, or a rediss:// URL for TLS. Errors do not show the
// text, because it may hold a password.
func ParseURL(t Type, network, text string) (Options, error) {
	parse := parseSingle
	switch t {
	case "", Single:
		if network == "unix" || strings.HasPrefix(text, "/") {
			parse = parseSocket
		}
	case Sentinel:
		parse = parseSentinel
	case Cluster:
		parse = parseCluster
	default:
		_, err := ParseType(string(t))
		return Options{}, err
	}
	if strings.TrimSpace(text) == "" {
		return Options{}, errors.New("an empty address: want host:port, redis://host:port/db or the path of a socket")
	}
	return parse(text)
}

func parseSocket(text string) (Options, error) {
	if strings.Contains(text, "://") {
		return Options{}, errors.New("a URL where the path of a socket should be: write a path, or set the type of socket to tcp")
	}
	return Options{Type: Single, Network: "unix", Addr: text}, nil
}

func parseSingle(text string) (Options, error) {
	if strings.Contains(text, ",") {
		return Options{}, errors.New("several addresses: write one address, or set the type to sentinel or cluster")
	}
	n, err := parseNode(text, "6379")
	if err != nil {
		return Options{}, fmt.Errorf("the address %w", err)
	}
	return Options{
		Type: Single, Network: "tcp", Addr: n.addr, Login: n.login, DB: n.db, TLS: n.tls(),
	}, nil
}

func parseSentinel(text string) (Options, error) {
	const want = "write the name of the master and then the Sentinels, as in master,host:port,host:port"
	name, sentinels, several := strings.Cut(text, ",")
	name = strings.TrimSpace(name)
	switch {
	case strings.ContainsAny(name, ":/"):
		return Options{}, errors.New("an address where the name of the master should be: " + want)
	case name == "":
		return Options{}, errors.New("no name of a master: " + want)
	case !several:
		return Options{}, errors.New("no Sentinels: " + want)
	}
	o := Options{Type: Sentinel, Master: name}
	common, err := o.parseNodes(sentinels, "26379", 2)
	if err != nil {
		return Options{}, err
	}
	if common.db != 0 {
		return Options{}, errors.New("a Sentinel has no databases: write an address without a database number")
	}
	o.SentinelLogin = common.login
	return o, nil
}

func parseCluster(text string) (Options, error) {
	o := Options{Type: Cluster}
	common, err := o.parseNodes(text, "6379", 1)
	if err != nil {
		return Options{}, err
	}
	if common.db != 0 {
		return Options{}, errors.New("a cluster has only database 0: write an address without a database number")
	}
	o.Login = common.login
	return o, nil
}

// parseNodes parses a list of addresses into o.Addrs and returns their common settings. first is
// the number of the first address in errors.
func (o *Options) parseNodes(list, port string, first int) (common node, err error) {
	for i, text := range strings.Split(list, ",") {
		n, err := parseNode(strings.TrimSpace(text), port)
		if err != nil {
			return node{}, fmt.Errorf("address %d of the list %w", first+i, err)
		}
		login := &common.login
		if differ(login.Username, n.login.Username) || differ(login.Password, n.login.Password) {
			return node{}, fmt.Errorf("address %d of the list has another user or password: want the same for all", first+i)
		}
		login.Username, login.Password = cmp.Or(login.Username, n.login.Username), cmp.Or(login.Password, n.login.Password)
		common.db, common.secure = max(common.db, n.db), common.secure || n.secure
		o.Addrs = append(o.Addrs, n.addr)
	}
	o.TLS = common.tls()
	return common, nil
}

// differ reports whether two addresses give different values. An address may give none.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// A node is a parsed address.
type node struct {
	addr   string
	login  Login
	db     int
	secure bool
}

func (n node) tls() *tls.Config {
	if !n.secure {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}
}

const wantNode = "want host:port or redis://user:password@host:port/db"

// parseNode parses an address. Its errors continue a sentence whose subject is the address.
func parseNode(text, port string) (node, error) {
	if text == "" {
		return node{}, errors.New("is empty: " + wantNode)
	}
	scheme, _, found := strings.Cut(text, "://")
	if !found {
		scheme, text = "redis", "redis://"+text
	}
	var query url.Values
	u, err := url.Parse(text)
	if err == nil {
		query, err = url.ParseQuery(u.RawQuery)
	}
	switch {
	case scheme != "redis" && scheme != "rediss":
		return node{}, errors.New("has an unknown scheme: " + wantNode + ", or rediss:// for TLS")
	case err != nil || u.Opaque != "" || u.Fragment != "":
		// The errors of net/url quote the text, which may contain a password.
		return node{}, errors.New("is not an address of Redis: " + wantNode +
			"; write special characters of a password as %XX")
	}
	for name := range query {
		switch name {
		case "username", "password", "db":
		default:
			return node{}, errors.New("has an unknown parameter: want only username, password or db")
		}
	}
	password, _ := u.User.Password()
	n := node{
		login: Login{
			Username: cmp.Or(u.User.Username(), query.Get("username")),
			Password: cmp.Or(password, query.Get("password")),
		},
		secure: scheme == "rediss",
	}
	if db := cmp.Or(strings.Trim(u.Path, "/"), query.Get("db")); db != "" {
		n.db, err = strconv.Atoi(db)
		if err != nil || n.db < 0 {
			return node{}, errors.New("names a database that is not a number: " + wantNode)
		}
	}
	port = cmp.Or(u.Port(), port)
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return node{}, errors.New("has a port that is out of range: want 1 to 65535")
	}
	n.addr = net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), port)
	return n, nil
}
