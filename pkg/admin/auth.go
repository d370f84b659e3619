package admin

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weir-rls/weir/internal/reloadfile"
	"github.com/weir-rls/weir/internal/smallfile"
)

// An Auth decides which calls are admitted. A call needs a valid token or a valid certificate.
type Auth struct {
	Tokens       *Tokens // nil: no token is valid
	Certificates bool    // a verified client certificate is valid
}

// caller returns the name of the caller for the audit log, and whether its credentials are valid.
func (a Auth) caller(r *http.Request) (who string, ok bool) {
	if a.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return "certificate " + r.TLS.PeerCertificates[0].Subject.String(), true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if a.Tokens == nil || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return a.Tokens.find(strings.TrimSpace(token))
}

// minTokenBytes is the length of the shortest token. A shorter one can be guessed.
const minTokenBytes = 16

// Tokens are the bearer tokens in a file, one on each line. A line that begins with # is a comment.
// Tokens reads the file again when it changes. While the file is unreadable, the last tokens stay
// valid.
type Tokens struct{ sums *reloadfile.Value[[]tokenSum] }

type tokenSum [sha256.Size]byte

// ReadTokens reads tokens from a file. failed is called with the error of a changed file, once for
// each different error.
func ReadTokens(path string, failed func(error)) (*Tokens, error) {
	sums, err := reloadfile.New("the tokens", []string{path}, func() ([]tokenSum, error) { return readTokenSums(path) }, failed)
	return &Tokens{sums}, err
}

// find returns the name of a token for the audit log, which is the start of its SHA-256. It
// compares the token with every valid one in constant time.
func (t *Tokens) find(token string) (who string, ok bool) {
	sum, found := sha256.Sum256([]byte(token)), 0
	for _, valid := range t.sums.Current() {
		found |= subtle.ConstantTimeCompare(sum[:], valid[:])
	}
	return "token " + hex.EncodeToString(sum[:4]), found == 1
}

func readTokenSums(path string) ([]tokenSum, error) {
	data, err := smallfile.Read(path)
	if err != nil {
		return nil, fmt.Errorf("the tokens: %w", err)
	}
	sums, err := tokenSums(data)
	if err != nil {
		return nil, fmt.Errorf("the tokens in %s: %w", path, err)
	}
	return sums, nil
}

func tokenSums(data []byte) (sums []tokenSum, err error) {
	line := 0
	for text := range bytes.Lines(data) {
		line++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if len(text) < minTokenBytes {
			return nil, fmt.Errorf("line %d has less than %d bytes, which can be guessed: write a longer token, such as that of openssl rand -hex 32", line, minTokenBytes)
		}
		sums = append(sums, sha256.Sum256(text))
	}
	if len(sums) == 0 {
		return nil, errors.New("no token: write one token on each line")
	}
	return sums, nil
}
