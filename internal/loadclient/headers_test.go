package loadclient

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/weir-rls/weir/internal/must"
)

// A reference is looked up in the current table, not in an earlier one.
func TestHPACKReferencesUseCurrentTable(t *testing.T) {
	var b bytes.Buffer
	encoder, h := hpack.NewEncoder(&b), newHeaders()
	for i, status := range []string{"0", "0", "0", "14", "14", "0"} {
		b.Reset()
		must.Succeed(t, encoder.WriteField(hpack.HeaderField{Name: "grpc-status", Value: status}))
		got, err := h.read(b.Bytes())
		if err != nil || (got == grpcOK) != (status == "0") {
			t.Errorf("%d: status %s in %x is read as %v (%v)", i, status, b.Bytes(), got, err)
		}
	}
	if _, err := h.read([]byte{0xff, 0xff}); err == nil {
		t.Error("half a reference is read")
	}
}
