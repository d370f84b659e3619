package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/smallfile"
	"github.com/weir-rls/weir/pkg/recorder"
)

// recordingTimeout bounds the last write, so that a hanging disk does not block shutdown.
const recordingTimeout = 2 * time.Second

// openRecorder opens the recorder of RECORD_PATH. It returns nil if RECORD_PATH is not set.
func (e *environment) openRecorder() (*recorder.Recorder, error) {
	s := e.settings
	if s.RecordPath == "" {
		return nil, nil
	}
	if info, err := os.Stat(s.RecordPath); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("RECORD_PATH: %s is not a folder: name a folder, which Weir creates if it is missing", s.RecordPath)
	}
	log := e.log.With(zap.String("recording", s.RecordPath))
	secret, err := recordSecret(s.RecordSecretFile)
	if err != nil {
		return nil, fmt.Errorf("RECORD_SECRET_FILE: %w", err)
	}
	if secret == nil {
		log.Info("recorded values are hashed under a random secret",
			zap.String("remedy", "set RECORD_SECRET_FILE if recordings of several processes should fit together"))
	}
	recording := recorder.New(recorder.Options{
		Path:       s.RecordPath,
		Replica:    e.hostname,
		FileBytes:  s.RecordFileBytes,
		MaxBytes:   s.RecordMaxBytes,
		Sample:     s.RecordSample,
		PerSecond:  s.RecordPerSecond,
		Secret:     secret,
		Plain:      s.RecordCompression == "none",
		ShadowMode: s.ShadowMode,
		Changed: func(failing bool, reason error) {
			if failing {
				log.Error("recording not written, lines are dropped until it can be", zap.Error(reason),
					zap.String("remedy", "check that the folder of RECORD_PATH is writable and its disk is not full"))
				return
			}
			log.Info("recording written again")
		},
	})
	e.metrics.RegisterRecording(recording.Stats)
	e.flushAtClose(recording.Close, recordingTimeout, "end of the recording not written")
	return recording, nil
}

// minRecordSecretBytes is the minimum length of the secret in RECORD_SECRET_FILE.
const minRecordSecretBytes = 16

// recordSecret returns the secret in a file, or nil without a file.
func recordSecret(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	text, err := smallfile.ReadOnce(file)
	if err != nil {
		return nil, err
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < minRecordSecretBytes {
		return nil, fmt.Errorf("the secret in %s has %d bytes: write at least %d", file, len(secret), minRecordSecretBytes)
	}
	return secret, nil
}
