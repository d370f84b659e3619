package settings

// Observation holds the settings of reports about decisions, besides the response.
type Observation struct {
	DenialLog          float64 `env:"DENIAL_LOG" default:"0" placeholder:"FRACTION" help:"Log the denials of this fraction of the keys, from 0 to 1, at level info. The lines contain hashes of keys instead of the values that users sent. All replicas log the same keys. 0 turns the log off."`
	DenialLogPerSecond int     `env:"DENIAL_LOG_PER_SECOND" default:"10" help:"The maximum number of DENIAL_LOG lines in a second. The next line reports how many denials were left out."`
	TopKeys            *int    `env:"TOP_KEYS" placeholder:"N" help:"The number of keys in each sketch of the busiest and the most denied keys: see docs/admin.md. More keys make the counts more exact, but in each of the 8 to 32 sketches, a key takes 100 bytes to 1 kB. Keys of more than 1 KiB are not counted. 0 means none. Without ADMIN_ADDR, nothing is counted. Default: 1000 if ADMIN_ADDR is set, else 0."`
	RecordPath         string  `env:"RECORD_PATH" placeholder:"FOLDER" help:"A folder to which Weir writes a recording of its requests, for weir simulate, suggest and diff: see docs/recording.md. Weir creates the folder if it is missing."`
	RecordSample       float64 `env:"RECORD_SAMPLE" default:"1" placeholder:"FRACTION" help:"The fraction of the keys, above 0 and up to 1, whose requests are recorded. The recording contains all hits of a key or none, and all replicas record the same keys."`
	RecordPerSecond    int     `env:"RECORD_PER_SECOND" default:"100000" placeholder:"N" help:"The maximum number of lines that Weir records in a second. Weir drops further lines and notes their number in the recording."`
	RecordFileBytes    int64   `env:"RECORD_FILE_BYTES" default:"67108864" placeholder:"BYTES" help:"The size at which Weir begins the next file of the recording."`
	RecordMaxBytes     int64   `env:"RECORD_MAX_BYTES" default:"1073741824" placeholder:"BYTES" help:"The size of all recordings in RECORD_PATH, at least twice RECORD_FILE_BYTES. Beyond it, Weir removes the oldest files."`
	RecordCompression  string  `env:"RECORD_COMPRESSION" default:"zstd" placeholder:"NAME" help:"The compression of the recording: zstd, or none for plain text."`
	RecordSecretFile   string  `env:"RECORD_SECRET_FILE" placeholder:"FILE" help:"A file with a secret of at least 16 bytes, the same for all replicas, with which Weir hashes the values that users sent: see docs/recording.md. Without it, each process uses a random secret, so a user looks different in the recording of each process."`
}

// maxTopKeys bounds the memory of the busiest keys.
const maxTopKeys = 100_000

// complete applies the defaults and adds errors. defaultTopKeys is the default of TOP_KEYS.
func (o *Observation) complete(errs *settingErrors, defaultTopKeys int) {
	if !(o.DenialLog >= 0 && o.DenialLog <= 1) { // NaN is neither
		errs.require("DENIAL_LOG", o.DenialLog, "be from 0 to 1")
	}
	positive(errs, "DENIAL_LOG_PER_SECOND", o.DenialLogPerSecond)
	if o.TopKeys == nil {
		o.TopKeys = &defaultTopKeys
	}
	if *o.TopKeys < 0 || *o.TopKeys > maxTopKeys {
		errs.require("TOP_KEYS", *o.TopKeys, "be from 0 to %d", maxTopKeys)
	}
	o.completeRecording(errs)
}

// minRecordFileBytes is the smallest RECORD_FILE_BYTES: a file needs room for some writes.
const minRecordFileBytes = 1 << 20

func (o *Observation) completeRecording(errs *settingErrors) {
	if !(o.RecordSample > 0 && o.RecordSample <= 1) { // NaN is neither
		errs.require("RECORD_SAMPLE", o.RecordSample, "be above 0 and at most 1")
	}
	positive(errs, "RECORD_PER_SECOND", o.RecordPerSecond)
	if o.RecordFileBytes < minRecordFileBytes {
		errs.require("RECORD_FILE_BYTES", o.RecordFileBytes, "be at least %d", minRecordFileBytes)
	}
	if o.RecordMaxBytes/2 < o.RecordFileBytes {
		errs.require("RECORD_MAX_BYTES", o.RecordMaxBytes, "be at least twice RECORD_FILE_BYTES (%d)", o.RecordFileBytes)
	}
	setDefault(&o.RecordCompression, "zstd")
	errs.oneOf("RECORD_COMPRESSION", &o.RecordCompression, "zstd", "none")
}
