package settings

import (
	"cmp"
	"net"
	"strconv"
	"strings"
)

// Admin are the settings of the admin API.
type Admin struct {
	AdminAddr      string `env:"ADMIN_ADDR" placeholder:"[HOST]:PORT" help:"The address of the admin API, such as 127.0.0.1:6071. Without a host, the API listens on this machine only. This setting needs ADMIN_TOKEN_FILE or ADMIN_TLS_CLIENT_CA. Set it on every replica, so that each reset reaches all of them. Default: none, so there is no admin API."`
	AdminTokenFile string `env:"ADMIN_TOKEN_FILE" placeholder:"FILE" help:"A file with the tokens of the admin API, one per line, each of at least 16 bytes. Callers send one as a bearer token. Weir reads the file again when it changes."`
	AdminCert      string `env:"ADMIN_TLS_CERT" name:"admin-tls-cert" placeholder:"FILE" help:"The certificate of the admin API, in PEM. With it, the API uses TLS. Weir reads the file again when it changes."`
	AdminKey       string `env:"ADMIN_TLS_KEY" name:"admin-tls-key" placeholder:"FILE" help:"The key of the certificate, in PEM."`
	AdminClientCA  string `env:"ADMIN_TLS_CLIENT_CA" name:"admin-tls-client-ca" placeholder:"FILE" help:"The CA of client certificates for the admin API, in PEM. A client with a certificate of this CA needs no token. It needs ADMIN_TLS_CERT."`
}

func (a *Admin) complete(errs *settingErrors) {
	if a.AdminAddr == "" {
		return
	}
	host, port, err := net.SplitHostPort(a.AdminAddr)
	if err != nil && !strings.Contains(a.AdminAddr, ":") {
		host, port, err = "", a.AdminAddr, nil
	}
	if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil {
		errs.add("ADMIN_ADDR", "cannot read %q: want host:port, such as 127.0.0.1:6071", a.AdminAddr)
	}
	a.AdminAddr = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	if a.AdminTokenFile == "" && a.AdminClientCA == "" {
		errs.add("ADMIN_ADDR", "the admin API can reset every key, so its callers need credentials: set ADMIN_TOKEN_FILE, or ADMIN_TLS_CLIENT_CA with ADMIN_TLS_CERT and ADMIN_TLS_KEY")
	}
	if (a.AdminCert == "") != (a.AdminKey == "") {
		errs.add("ADMIN_TLS_CERT", "the certificate or its key is missing: set ADMIN_TLS_CERT and ADMIN_TLS_KEY, or neither")
	}
	if a.AdminClientCA != "" && a.AdminCert == "" {
		errs.add("ADMIN_TLS_CLIENT_CA", "without TLS there are no client certificates: set ADMIN_TLS_CERT and ADMIN_TLS_KEY")
	}
}

// AdminIsExposed reports whether other machines can reach the admin API without TLS.
func (a *Admin) AdminIsExposed() bool {
	host, _, err := net.SplitHostPort(a.AdminAddr)
	if err != nil || a.AdminCert != "" {
		return false
	}
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}
