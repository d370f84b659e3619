package descriptors

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Version returns a fingerprint of the decisions of r: 16 lower-case hexadecimal digits, equal in
// all processes with the same rules. File names, comments and the order of nodes do not affect it,
// except the order of wildcards at one level. Nil and the zero value have the version "".
func (r *Rules) Version() string {
	if r == nil {
		return ""
	}
	return r.version
}

// A digest is the SHA-256 of a part of the rules.
type digest = [sha256.Size]byte

// version returns the Version of the rules added so far.
func (b *Builder) version() string {
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(b.domains)) {
		d := b.domains[name]
		sum := d.digest(b.roots[name])
		text = append(appendTexts(append(text, byte(cmp.Or(d.defaults.OnStoreError, limiters.OnStoreErrorFail))), name), sum[:]...)
		text = d.defaults.OnDeny.appendDigest(text)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// effect encodes the path of r and every field that affects a decision or a response. domain must
// be the domain of r.
func (r *Rule) effect(domain *Domain) (b []byte) {
	for i := range r.path {
		b = r.path[i].appendDigest(b)
	}
	return domain.appendRule(b, r)
}

// identity encodes the domain and the path of r, which are unique among the rules.
func (r *Rule) identity() []byte {
	b := appendTexts(nil, r.Domain)
	for i := range r.path {
		n := &r.path[i]
		b = appendTexts(append(b, byte(n.kind)), n.key, n.value)
	}
	return b
}

// digest returns the digest of n, a node of d, and all nodes below it. Children that are not
// wildcards are sorted, because their order has no effect.
func (d *Domain) digest(n *Node) digest {
	var sorted, wildcards []digest
	for _, child := range n.children {
		if child.kind == Wildcard {
			wildcards = append(wildcards, d.digest(child))
		} else {
			sorted = append(sorted, d.digest(child))
		}
	}
	slices.SortFunc(sorted, func(a, b digest) int { return bytes.Compare(a[:], b[:]) })
	text := n.appendDigest(nil)
	text = d.appendRule(text, n.rule)
	text = binary.LittleEndian.AppendUint64(text, uint64(len(sorted)))
	for _, child := range append(sorted, wildcards...) {
		text = append(text, child[:]...)
	}
	return sha256.Sum256(text)
}

func (n *pathNode) appendDigest(b []byte) []byte {
	b = append(b, byte(n.kind), bit(n.isShared), bit(n.valueToMetric))
	b = appendTexts(b, n.key, n.value)
	if n.list != nil {
		b = appendList(b, n.list.items())
	}
	return b
}

// appendRule appends every field of r, a rule of d, that affects a decision or a response.
func (d *Domain) appendRule(b []byte, r *Rule) []byte {
	if r == nil {
		return append(b, 0)
	}
	b = append(b, 1, bit(r.Unlimited), bit(r.ShadowMode), bit(r.QuotaMode), bit(r.DetailedMetric))
	b = appendList(appendTexts(b, r.LimitName), r.Replaces)
	metadata := ""
	if len(r.Metadata) > 0 {
		metadata = fmt.Sprintf("%#v", r.Metadata) // maps in the order of their keys
	}
	b = appendTexts(b, metadata)
	for i := range r.Limits {
		l := &r.Limits[i]
		spec := l.Spec()
		b = append(b, byte(l.Unit), bit(l.CalendarMonth)|bit(l.SetsClockStart)<<1, bit(spec.CountDenied), byte(d.OnStoreError(l)))
		for _, number := range []int64{int64(l.UnitMultiplier), l.RequestsPerUnit, spec.Max, int64(spec.Window)} {
			b = binary.LittleEndian.AppendUint64(b, uint64(number))
		}
		b = appendTexts(b, l.Name, spec.Algorithm, spec.Params.String())
		b = cmp.Or(l.OnDeny, d.defaults.OnDeny).appendDigest(b)
	}
	return b
}

// appendDigest appends nothing for nil, so that the versions of rules without on_deny stay stable.
func (o *OnDeny) appendDigest(b []byte) []byte {
	if o == nil {
		return b
	}
	const mark = 0xff // no Unit, with which the next limit begins
	b = appendTexts(append(b, mark, bit(o.Problem)), o.Body, o.ContentType)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(o.Headers)))
	for _, h := range o.Headers {
		b = appendTexts(b, h.Name, h.Value)
	}
	return b
}

// appendTexts appends each text with its length, so that different texts have different encodings.
func appendTexts(b []byte, texts ...string) []byte {
	for _, text := range texts {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(text))), text...)
	}
	return b
}

// appendList appends the number of texts, and the texts.
func appendList(b []byte, texts []string) []byte {
	return appendTexts(binary.LittleEndian.AppendUint64(b, uint64(len(texts))), texts...)
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}
