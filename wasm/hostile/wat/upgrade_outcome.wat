;; Calls an UNKNOWN write a success.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\22outcome\22:\22SUCCEEDED\22,\22class\22:\22none\22}")
  (func (export "fb_classify") (param i32 i32) (result i64) (i64.const 274877906982))
)
