"""A PyTorch script that knows nothing of ftlaunch: it needs only RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.full((3,), float(rank + 1))
dist.all_reduce(x)
assert x.tolist() == [world * (world + 1) / 2] * 3, x
boxes = [torch.zeros(1) for _ in range(world)]
dist.all_gather(boxes, torch.tensor([float(rank)]))
assert [int(b) for b in boxes] == list(range(world))
dist.barrier()
print(f"rank {rank} of {world}: sum {x[0]:.0f}", flush=True)
dist.destroy_process_group()
