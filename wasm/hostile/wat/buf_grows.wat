;; Makes the memory larger while it is asked for a buffer, so that a host that remembers the size is wrong.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32)
    (drop (memory.grow (i32.const 1)))
    (i32.sub (i32.mul (memory.size) (i32.const 65536)) (local.get 0)))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\22outcome\22:\22FAILED\22,\22class\22:\22budget\22}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64) (i64.const 274877906981))
)
