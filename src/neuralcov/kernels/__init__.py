"""Operations that have a Triton kernel beside their plain form; nothing else here imports Triton."""
