package receipts

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A frame holds one receipt in the write-ahead log:
//
//	u32 length | u32 crc32c(length, bytes) | bytes      (little endian)
//
// The checksum covers the length too, so that a run of zeros is no frame.
const (
	frameHead = 8
	maxFrame  = 1<<16 - 1 // entry bundles of c2sp.org/tlog-tiles count in 16 bits
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendFrame(b, receipt []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, receipt...)
	sealFrame(b[start:])
	return b
}

// sealFrame fills the head of the frame that is f.
func sealFrame(f []byte) {
	binary.LittleEndian.PutUint32(f, uint32(len(f)-frameHead))
	sum := crc32.Checksum(f[:4], castagnoli)
	sum = crc32.Update(sum, castagnoli, f[frameHead:])
	binary.LittleEndian.PutUint32(f[4:], sum)
}

var (
	errTorn  = errors.New("frame ends early")
	errFrame = errors.New("frame checksum is wrong")
)

// nextFrame splits the first frame off b. errTorn says that b may be the
// beginning of a frame whose rest is missing.
func nextFrame(b []byte) (receipt, rest []byte, err error) {
	if len(b) < frameHead {
		return nil, nil, errTorn
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 2 || n > maxFrame {
		return nil, nil, fmt.Errorf("%w: length %d", errFrame, n)
	}
	end := frameHead + int(n)
	if len(b) < end {
		return nil, nil, errTorn
	}
	sum := crc32.Checksum(b[:4], castagnoli)
	sum = crc32.Update(sum, castagnoli, b[frameHead:end])
	if sum != binary.LittleEndian.Uint32(b[4:]) {
		return nil, nil, errFrame
	}
	return b[frameHead:end], b[end:], nil
}
