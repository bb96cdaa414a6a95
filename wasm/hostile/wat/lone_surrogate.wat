;; Half of a surrogate pair as a reason: no text at all.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\22outcome\22:\22FAILED\22,\22class\22:\22budget\22,\22reason\22:\22\5cud800\22}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64) (i64.const 274877906999))
)
