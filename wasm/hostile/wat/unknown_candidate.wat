;; Chooses a fallback nobody declared.
(module
  (memory (export "memory") 2)
  (func (export "fb_abi_1"))
  (func (export "fb_buf") (param i32) (result i32) (i32.const 4096))
  (data (i32.const 64) "{\22choose\22:\22sudo\22,\22reason\22:\22trust me\22}")
  (func (export "fb_fallback") (param i32 i32) (result i64) (i64.const 274877906981))
  (func (export "fb_classify") (param i32 i32) (result i64) (i64.const 0))
)
