package main

import (
	"encoding/binary"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// Messages of 4 MiB that lack their last byte are held in bounded memory, and no ordinary request
// is rejected meanwhile.
func TestUnfinishedMessagesAreBounded(t *testing.T) {
	s := startServer(t, "CONFIG_PATH="+rulesFile(t))
	s.awaitHealthy()
	const conns, streams, size = 2, 100, 4 << 20
	// The messages may take 64 MiB, and garbage 128 MiB. A busy machine collects late. Without the
	// bound, the messages take 800 MiB.
	const maxInUse = 400 << 20
	progress, message := make(chan struct{}, conns*streams), make([]byte, size-1)
	for range conns {
		client := &http.Transport{Protocols: new(http.Protocols), MaxConnsPerHost: 1}
		client.Protocols.SetUnencryptedHTTP2(true)
		t.Cleanup(client.CloseIdleConnections)
		for range streams {
			body, out := io.Pipe()
			t.Cleanup(func() { _ = out.Close() })
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address("grpc")+shouldRateLimit, body)
			must.Succeed(t, err)
			request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
			go func() {
				if response, err := client.RoundTrip(request); err == nil {
					_ = response.Body.Close()
				}
			}()
			go func() {
				prefix := binary.BigEndian.AppendUint32([]byte{0}, size)
				_, _ = out.Write(prefix)
				_, _ = out.Write(message) // ends early if the server rejects the message
				progress <- struct{}{}
			}()
		}
	}
	timeout := time.After(8 * time.Second)
wait:
	for range conns * streams {
		select {
		case <-progress:
		case <-timeout:
			break wait
		}
	}
	if _, err := s.call("alice"); err != nil {
		t.Error(err)
	}
	inuse := number(t, s.metric("go_memstats_heap_inuse_bytes"))
	t.Logf("%.0f MiB of heap", inuse/(1<<20))
	if inuse > maxInUse {
		t.Errorf("%.0f bytes of heap beside %d unfinished messages of 4 MiB, want at most %d", inuse, conns*streams, maxInUse)
	}
}
