package guest

// The marker of ABI 1; it is found by its name and never called.
//
//go:wasmexport fb_abi_1
func abi1() {}

// buf tells the host where to write a document.
//
//go:wasmexport fb_buf
func buf(size uint32) *byte {
	if size > maxInput {
		return nil
	}
	return &input[0]
}
