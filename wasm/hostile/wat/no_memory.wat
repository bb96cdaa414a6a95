;; Has no memory.
(module
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (func (export "fb_classify") (param i32 i32) (result i64) (i64.const 0))
)
