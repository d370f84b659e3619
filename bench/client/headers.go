package client

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// said is what headers and trailers say of a request.
type said uint8

const (
	status200 said = 1 << iota
	status429
	grpcOK
	grpcExhausted
)

// headers reads blocks of headers. Servers say the same again and again, as references to HPACK's table: what such a block
// means is remembered for as long as the table stays as it is.
type headers struct {
	decoder *hpack.Decoder
	said    said
	text    strings.Builder // of what a block says, that is no success
	known   []known

	complaint string // the first text there was
}

type known struct {
	block []byte
	said  said
}

const (
	maxKnown = 8
	maxBlock = 8 // bytes
)

func newHeaders() *headers {
	h := &headers{}
	h.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		switch {
		case f.Name == ":status" && f.Value == "200":
			h.said |= status200
		case f.Name == ":status" && f.Value == "429":
			h.said |= status429
		case f.Name == "grpc-status" && f.Value == "0":
			h.said |= grpcOK
		case f.Name == "grpc-status" && f.Value == "8":
			h.said |= grpcExhausted
			fallthrough
		case f.Value != "" && (f.Name == ":status" || strings.HasPrefix(f.Name, "grpc-")):
			fmt.Fprintf(&h.text, "%s: %s ", f.Name, f.Value)
		}
	})
	return h
}

// errHeaders is a table of headers that is not the server's any more.
var errHeaders = errors.New("headers that cannot be read")

// read reads a block. Blocks have to be read in order.
func (h *headers) read(block []byte) (said, error) {
	references := onlyReferences(block)
	if references {
		for i := range h.known {
			if bytes.Equal(h.known[i].block, block) {
				return h.known[i].said, nil
			}
		}
	} else {
		h.known = h.known[:0]
	}
	h.said = 0
	h.text.Reset()
	if _, err := h.decoder.Write(block); err != nil {
		return 0, errors.Join(errHeaders, err)
	}
	if err := h.decoder.Close(); err != nil {
		return 0, errors.Join(errHeaders, err)
	}
	if h.complaint == "" && h.text.Len() > 0 {
		h.complaint = h.text.String()
	}
	if references && (h.text.Len() == 0 || h.said&grpcExhausted != 0) && len(h.known) < maxKnown {
		h.known = append(h.known, known{bytes.Clone(block), h.said})
	}
	return h.said, nil
}

// onlyReferences tells whether each field of a block is a byte that refers to the table, which leaves the table as it is.
func onlyReferences(block []byte) bool {
	for _, b := range block {
		if b < 0x80 {
			return false
		}
	}
	return len(block) <= maxBlock
}
