;; Takes all the memory it may have and writes to every page of it, in every call.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 0))
  (data (i32.const 64) "{\22outcome\22:\22FAILED\22,\22class\22:\22budget\22}")
  (func (export "fb_classify") (param $p i32) (param $n i32) (result i64)
    (local $i i32)
    (drop (memory.grow (i32.const 254)))
    (loop $l
      (i32.store8 (local.get $i) (i32.xor (i32.load8_u (local.get $i)) (i32.const 0)))
      (i32.store8 offset=1 (i32.add (local.get $i) (i32.const 512)) (i32.const 1))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 4096))) (i32.const 16773120))))
    (i64.const 274877906981))
)
