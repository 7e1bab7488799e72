import asyncio, sys, json, os, time, tempfile, subprocess, signal
sys.path.insert(0,"tests")
from test_serving import *
async def go(d, mode):
    with over_http(Path(d)) as (srv, addr):
        h=create_mcp_http_client(headers={"Authorization": f"Bearer {TOKEN}"})
        async with Client(streamable_http_client(addr, http_client=h), mode=mode) as c:
            lines=[]
            t=asyncio.create_task(call(c,"evaluate",lines,task="relu",kernel=HANGS,check_only=True))
            while not any("cases done" in l for l in lines):
                await asyncio.sleep(.1)
                if t.done(): print("done early",t.result())
            run=programs_of(srv.pid); t0=time.time()
            if mode=="legacy":
                t.cancel()
                while still_run(run): await asyncio.sleep(.02)
                print(mode,"cancel gone after",time.time()-t0,len(run))
                print((await call(c,"best_so_far"))[2][:100])
            lines=[]
            t=asyncio.create_task(call(c,"evaluate",lines,task="relu",kernel=HANGS,check_only=True))
            while not any("cases done" in l for l in lines): await asyncio.sleep(.1)
            run=programs_of(srv.pid); t0=time.time()
            srv.send_signal(signal.SIGTERM)
            while still_run(run) or srv.poll() is None: await asyncio.sleep(.02)
            print(mode,"SIGTERM: all gone after",time.time()-t0, srv.returncode)
            t.cancel()
    print(open(d+"/runs/mcp/ledger.jsonl").read())
for mode in ("legacy","auto"):
    try: asyncio.run(go(tempfile.mkdtemp(),mode))
    except BaseException as e: print("outer", type(e), str(e)[:200])
